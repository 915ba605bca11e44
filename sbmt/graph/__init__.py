"""Masks as graphs: edge lists in compressed sparse rows, and the patterns that make some."""
