"""The public API: the graph, its snapshots and its namespaces."""
