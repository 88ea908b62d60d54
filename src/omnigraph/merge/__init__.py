"""Differences between states of the graph, merges, blame and the change feed."""
