"""What users hold: the graph, its snapshots and its namespaces."""
