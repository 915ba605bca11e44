"""The control every learned mask must beat: a random mask of the same density."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.dispatch import check_attention_inputs, check_dropout, edge_attention
from sbmt.block_model import BlockModel
from sbmt.errors import SbmtError, check_sizes
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput


class RandomMaskAttention(nn.Module):
    """Attention under a fresh mask whose every edge has the same probability, whatever the input.

    It is the block model with one cluster that all tokens belong to. Nothing about the mask is learned.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        mask_density: Edge probability in [0, 1].
        dropout: On the attention weights while training, in [0, 1).
        backend: What attends along the edges; ``"auto"`` chooses.

    Cost: O(n + edges · d).
    """

    def __init__(
        self, d_head: int, n_heads: int, *, mask_density: float = 0.25, dropout: float = 0.0, backend: str = "auto"
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        if not 0 <= mask_density <= 1:
            raise SbmtError("mask_density in [0, 1]", mask_density, "give the density of the mask to compare with")
        check_dropout(dropout)
        self.d_head, self.n_heads = d_head, n_heads
        self.mask_density, self.dropout, self.backend = mask_density, dropout, backend

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
        """Draws a mask and attends along it; see :class:`~sbmt.layers.SBMAttention` for arguments."""
        check_attention_inputs(query, key, value)
        batch, heads, n_queries, _ = query.shape
        ones = (query.new_ones(batch, 1, n, 1) for n in (n_queries, key.shape[2]))
        block_matrix = query.new_full((heads, 1, 1), self.mask_density)
        block_model = BlockModel(next(ones), block_matrix, next(ones), query_mask, key_mask)
        edges = sample_edges(block_model, generator=generator)
        values = edge_attention(
            query,
            key,
            value,
            edges,
            backend=self.backend,
            dropout=self.dropout if self.training else 0.0,
            generator=generator,
        )
        expected = block_model.expected_density()
        return AttentionOutput(values, edges.density(), expected, edges if return_edges else None)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, mask_density={self.mask_density}"
