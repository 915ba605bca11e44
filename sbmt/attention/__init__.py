"""Attends along edges: one meaning, several backends."""

from sbmt.attention.dispatch import available_backends, edge_attention, register_backend
from sbmt.attention.inputs import EdgeTerms
from sbmt.attention.message_passing import EdgeAttention

__all__ = ["EdgeAttention", "EdgeTerms", "available_backends", "edge_attention", "register_backend"]
