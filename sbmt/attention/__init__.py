"""Attention along edges, with one definition and several backends."""

from sbmt.attention.dispatch import available_backends, edge_attention
from sbmt.attention.inputs import EdgeTerms

__all__ = ["EdgeTerms", "available_backends", "edge_attention"]
