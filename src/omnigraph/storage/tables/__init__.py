"""The only door to Lance: tables at a version, staged writes, indexes, searches."""
