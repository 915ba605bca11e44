"""Masks as graphs: edge lists in compressed sparse row (CSR) format, and fixed patterns."""
