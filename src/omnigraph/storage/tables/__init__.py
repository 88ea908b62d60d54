"""The only interface to Lance: tables at a version, staged writes, indexes, searches."""

from omnigraph.storage.tables.deferred_compute import defer_compute_functions
from omnigraph.storage.tables.deferred_pandas import defer_pandas

# Before the first module of this package imports Lance.
defer_compute_functions()
defer_pandas()
