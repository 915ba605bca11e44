"""Compiled loops over edges, and the PyTorch operators that call them."""
