"""Embedding providers: local, mock and remote."""
