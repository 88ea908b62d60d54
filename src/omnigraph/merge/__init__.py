"""What differs between states of the graph, and how two of them become one."""
