"""Compaction and indexes: what a table needs, when it is worth it, and doing it."""
