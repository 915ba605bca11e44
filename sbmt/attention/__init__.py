"""Attends along edges: one meaning, several backends."""

from typing import TYPE_CHECKING

from sbmt.attention.dispatch import available_backends, edge_attention
from sbmt.attention.inputs import EdgeTerms

if TYPE_CHECKING:
    from sbmt.attention.message_passing import EdgeAttention as EdgeAttention

__all__ = ["EdgeAttention", "EdgeTerms", "available_backends", "edge_attention"]

if not TYPE_CHECKING:  # a type checker would take every misspelt name for the layer

    def __getattr__(name: str) -> type:
        """Imports PyTorch Geometric, which takes longer than torch, when its layer is first asked for."""
        if name == "EdgeAttention":
            from sbmt.attention.message_passing import EdgeAttention

            return EdgeAttention
        raise AttributeError(f"module 'sbmt.attention' has no attribute {name!r}")
