"""Compiled loops over edges, with PyTorch operators that call them, and GPU kernels."""
