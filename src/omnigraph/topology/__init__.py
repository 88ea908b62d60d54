"""Adjacency: who is joined to whom, as arrays of small numbers. Derived, and rebuilt at will."""
