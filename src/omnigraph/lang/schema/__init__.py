"""The schema language: ``.pg`` texts, their catalog, their canonical form and their changes."""
