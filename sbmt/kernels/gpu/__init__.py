"""Triton kernels for crossed memberships: parts, clusters, and attention along edges that are drawn on the way."""
