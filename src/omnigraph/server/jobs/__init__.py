"""Jobs: long work whose state is a record beside the graph, so that it outlives its process."""
