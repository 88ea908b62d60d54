"""Exclusive rights to write a table on a branch, between threads, processes and machines."""
