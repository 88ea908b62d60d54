"""The schema of a graph on disk: its files, its history, staged changes, and the lock."""
