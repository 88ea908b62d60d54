"""A cluster: where it is, and what was applied to it.

A cluster is a directory or a prefix with graphs and a ledger of what was applied to them. Here it
is only read. No lock is taken, nothing is repaired.
"""
