"""Exclusive rights to write a table on a branch, between threads, processes and machines."""

TTL_SECONDS = 15.0
"""How long a lease on S3 outlives a writer that died with it."""
