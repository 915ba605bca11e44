"""Attention along edges that the task gives away: what a mask could reach at best."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention import edge_attention
from sbmt.graph.edges import EdgeList
from sbmt.models import Encoder, ModelOutput, TokenTagger
from sbmt.types import AttentionOutput


class OracleAttention(nn.Module):
    """Softmax attention along the edges that it was given before the call, whatever the input."""

    edges: EdgeList

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Attends; the edges decide which tokens are real."""
        values, density = edge_attention(query, key, value, self.edges), self.edges.density()
        return AttentionOutput(values, density, density, self.edges if return_edges else None)


class OracleTagger(TokenTagger):
    """A tagger whose layers attend along edges that follow from the tokens by a rule of the task, not learned.

    Args:
        encoder: What reads the tokens; its attentions are replaced.
        n_labels: Logits per token.
        find_edges: From tokens to edges.
    """

    def __init__(self, encoder: Encoder, n_labels: int, find_edges: Callable[[Tensor], EdgeList]) -> None:
        super().__init__(encoder, n_labels)
        self.find_edges, self.oracle = find_edges, OracleAttention()
        for block in encoder.blocks:
            block.get_submodule("attention").attention = self.oracle

    def forward(
        self,
        tokens: Tensor,
        mask: Tensor | None = None,
        *,
        selected: Tensor | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """See :class:`~sbmt.models.TokenTagger`."""
        self.oracle.edges = self.find_edges(tokens)
        return super().forward(tokens, mask, selected=selected, generator=generator, return_edges=return_edges)
