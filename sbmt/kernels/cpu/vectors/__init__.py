"""Vector code of our own, sixteen numbers at a time: what compilers do not find in a loop, or do badly in short ones.

A file holds what kernels call for one purpose; :mod:`~sbmt.kernels.cpu.vectors.flat` is what all of it is written with.
"""
