"""Removal of versions and files that no retained state needs."""
