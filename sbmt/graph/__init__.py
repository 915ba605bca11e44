"""Masks as graphs: edge lists in compressed sparse rows, and fixed patterns."""
