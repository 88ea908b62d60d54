"""The schema of a graph on disk: its files, their history, their change, and the lock of it."""
