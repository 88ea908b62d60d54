"""Schema evolution: the changes of tables that a new schema needs, applied in one commit."""
