"""Attention under a random mask, the control for learned masks of the same density."""

from typing import Any

import torch
from torch import nn

from sbmt.attention.dispatch import check_backend, edge_attention
from sbmt.baselines.base import Baseline, Inputs
from sbmt.block_model.model import BlockModel, reweighting_bias
from sbmt.errors import SbmtError, describe, is_number
from sbmt.graph.edges import check_window
from sbmt.graph.patterns import sliding_window
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput


class RandomMaskAttention(Baseline):
    """Attention under a random mask that is drawn in each call and gives every pair the same edge probability.

    The mask is not learned, since its block model has a single cluster. If ``mask_density=0``, only the window remains.

    Args:
        mask_density: Edge probability in [0, 1] of pairs outside the window.
        window: Tokens also attend to tokens at most ``window / 2`` positions away. 0 means self-loops, None no window.
        reweight: Whether the weight of a drawn edge is multiplied by 1/p, as in :class:`~sbmt.layers.SBMAttention`.
        sink: Whether each head learns a logit that takes part in the softmax but has no value.
        backend: Implementation of attention along edges, or ``"auto"``.
        causal: If True, no token attends to a later one.

    Cost: O(n + edges · d).
    """

    is_drawn, is_precise = True, False

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        *,
        mask_density: float = 0.25,
        window: int | None = None,
        reweight: bool = False,
        sink: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
        causal: bool = False,
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout, causal=causal)
        if not is_number(mask_density) or not 0 <= mask_density <= 1:
            raise SbmtError(f"mask_density must be in [0, 1], got {describe(mask_density)}")
        if window is not None:
            check_window(window)
        check_backend(backend)
        self.mask_density, self.window, self.reweight, self.backend = mask_density, window, reweight, backend
        self.sink = nn.Parameter(torch.zeros(n_heads)) if sink else None

    def reset_parameters(self) -> None:
        """Sets the logits of the sinks, if there are any, to zero."""
        if self.sink is not None:
            nn.init.zeros_(self.sink)

    def attend(self, inputs: Inputs) -> AttentionOutput:
        """Draws a mask and attends along its edges."""
        query, key, value, query_mask, key_mask, dropout, generator, return_edges = inputs
        batch, heads, n_queries, n_keys = shape = (*query.shape[:3], key.shape[2])
        dtype = torch.promote_types(query.dtype, torch.float32)  # 16 bits would round the probability
        ones = [query.new_ones(batch, 1, n, 1, dtype=dtype) for n in (n_queries, n_keys)]
        block_matrix = ones[0].new_full((heads, 1, 1), self.mask_density)
        block_model = BlockModel(ones[0], block_matrix, ones[1], query_mask, key_mask, causal=self.causal)
        edges, expected = sample_edges(block_model, generator=generator), block_model.expected_density()
        if self.window is not None:
            near = sliding_window(shape, self.window, query_mask, key_mask, self.causal, device=query.device)
            share = near.density().to(dtype)
            edges, expected = edges.union(near), share + (1 - share) * expected
        bias = None
        if self.reweight:
            drawn_with = torch.full_like(edges.keys, self.mask_density, dtype=dtype)
            bias = reweighting_bias(drawn_with.masked_fill(edges.is_near(self.window), 1.0))
        options: dict[str, Any] = {"backend": self.backend, "dropout": dropout, "generator": generator}
        values = edge_attention(query, key, value, edges, bias=bias, sink=self.sink, **options)
        return AttentionOutput(values, edges.density(), expected, edges if return_edges else None)
