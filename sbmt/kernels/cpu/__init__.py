"""Loops over the edges of a mask for the CPU, compiled by numba: how they are drawn, attended and fitted.

Each file holds one operation. Its loops take ranges of rows, or of graphs, and write nowhere else, so results do not
depend on the number of threads.
"""
