"""Copies of a graph with all its history: backup, restore, clone, prune."""
