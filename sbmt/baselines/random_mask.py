"""The control every learned mask must beat: a random mask of the same density."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.dispatch import check_attention_inputs, check_dropout, edge_attention
from sbmt.block_model import BlockModel
from sbmt.edges import EdgeList, check_mask, count_pairs
from sbmt.errors import SbmtError, check_sizes
from sbmt.patterns import sliding_window
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput


class RandomMaskAttention(nn.Module):
    r"""Attention under a fresh mask whose edges all have the same probability, whatever the input.

    It is the block model with one cluster that all tokens belong to. Nothing about the mask is learned.

    With a ``window`` every token also attends those at most ``window / 2`` places away. Of the N real pairs of an
    example, W of which lie in the window, the others are edges with probability

    $$p = \min(\max((\text{mask\_density} \cdot N - W) / (N - W), 0), 1),$$

    so that the whole mask has the density asked for in expectation, however many tokens are padding. Where the window
    alone is denser, the mask is the window.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        mask_density: Expected density of the whole mask in [0, 1].
        window: Width of the sliding window; 0 means self-loops, None means no window.
        dropout: On the attention weights while training, in [0, 1).
        backend: What attends along the edges; ``"auto"`` chooses.

    Cost: O(n + edges · d).
    """

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        *,
        mask_density: float = 0.25,
        window: int | None = None,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        if not 0 <= mask_density <= 1:
            raise SbmtError("mask_density in [0, 1]", mask_density, "give the density of the mask to compare with")
        if window is not None and (not isinstance(window, int) or window < 0):
            raise SbmtError("window as None or an integer ≥ 0", window, "w attends w / 2 tokens to either side")
        check_dropout(dropout)
        self.d_head, self.n_heads = d_head, n_heads
        self.mask_density, self.window, self.dropout, self.backend = mask_density, window, dropout, backend

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
        edges, expected = self._draw(query, key, query_mask, key_mask, generator)
        values = edge_attention(
            query,
            key,
            value,
            edges,
            backend=self.backend,
            dropout=self.dropout if self.training else 0.0,
            generator=generator,
        )
        return AttentionOutput(values, edges.density(), expected, edges if return_edges else None)

    def _draw(
        self,
        query: Tensor,
        key: Tensor,
        query_mask: Tensor | None,
        key_mask: Tensor | None,
        generator: torch.Generator | None,
    ) -> tuple[EdgeList, Tensor]:
        """The mask, and its expected density ``(batch, heads)``.

        A coin of probability p is tossed for the window's pairs too, where it changes nothing.
        """
        shape = batch, heads, n_queries, n_keys = (*query.shape[:3], key.shape[2])
        query_mask = check_mask("query_mask", query_mask, batch, n_queries)
        key_mask = check_mask("key_mask", key_mask, batch, n_keys)
        n_pairs = count_pairs(shape, query_mask, key_mask, query.device)  # batch
        n_certain, near = torch.zeros_like(n_pairs), None
        if self.window is not None:
            near = sliding_window(shape, self.window, query_mask, key_mask, device=query.device)
            n_certain = near.row_ptr[:: heads * n_queries].diff() // heads
        n_wanted = self.mask_density * n_pairs.double() - n_certain
        p = (n_wanted / (n_pairs - n_certain).clamp(min=1)).clamp(0, 1)

        dtype = torch.promote_types(query.dtype, torch.float32)  # 16 bits would round the probability
        ones = [query.new_ones(batch, 1, n, 1, dtype=dtype) for n in (n_queries, n_keys)]
        queries = ones[0] * p.to(dtype)[:, None, None, None]  # batch 1 n_queries 1
        block_model = BlockModel(queries, ones[0].new_ones(heads, 1, 1), ones[1], query_mask, key_mask)
        edges = sample_edges(block_model, generator=generator)
        expected = block_model.expected_density()  # batch heads
        if near is None:
            return edges, expected
        share = (n_certain.double() / n_pairs.clamp(min=1)).to(dtype)[:, None]  # of the window
        return edges.union(near), share + (1 - share) * expected

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, mask_density={self.mask_density}, window={self.window}"
