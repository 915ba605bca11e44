"""Kernels compiled by numba for the CPU: plain loops over NumPy arrays, without torch and without the library's types.

Each kernel works on a range of rows and writes only there, so :mod:`sbmt.compiled.parallel` can hand ranges to threads
in any number without changing a bit of the result. What a kernel computes is said in its docstring; what it means is
said where it is called.
"""
