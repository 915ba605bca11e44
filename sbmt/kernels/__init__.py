"""Compiled code: for the CPU by numba, for GPUs by Triton."""
