"""Changing the schema of a graph: what has to happen to its tables, and doing it in one commit."""
