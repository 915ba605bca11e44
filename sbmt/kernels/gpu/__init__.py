"""Triton kernels that draw edges and attend along them, for fitted masks and for the paper's."""
