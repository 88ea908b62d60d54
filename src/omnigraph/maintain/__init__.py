"""Housekeeping: indexes, optimize, repair, cleanup, verify, backup, and the doctor."""
