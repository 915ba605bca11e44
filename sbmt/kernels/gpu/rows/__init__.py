"""Attention along the rows of an edge list."""
