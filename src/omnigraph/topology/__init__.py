"""Adjacency lists as arrays of node numbers. They are derived data and can always be rebuilt."""
