"""The only interface to Lance: tables at a version, staged writes, indexes, searches."""
