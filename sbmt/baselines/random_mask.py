"""The control that every learned mask must beat: a random mask of the same density."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.dispatch import check_backend, edge_attention
from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.block_model.model import BlockModel
from sbmt.block_model.reweighting import reweighting_bias
from sbmt.counter_rng import draw_seed
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.patterns import check_window, is_in_window, sliding_window
from sbmt.registration import option
from sbmt.samplers import sample_edges
from sbmt.types import AttentionOutput


def check_mask_density(mask_density: float) -> None:
    """Raises SbmtError unless this is a number in [0, 1]."""
    if not isinstance(mask_density, (int, float)) or not 0 <= mask_density <= 1:
        raise SbmtError("mask_density in [0, 1]", mask_density, "give the density of the mask to compare with")


@dataclass(frozen=True)
class RandomMaskOptions:
    """Options of :class:`RandomMaskAttention`."""

    mask_density: float = option(0.25, "edge probability, outside the window if there is one")
    window: int | None = option(None, "also attend to the tokens at most window / 2 places away")
    reweight: bool | None = option(None, "whether a drawn edge weighs 1/p times as much")
    sink: bool | None = option(None, "whether a learned logit without a value joins each softmax")

    def __post_init__(self) -> None:
        check_mask_density(self.mask_density)


class RandomMaskAttention(nn.Module):
    """Attention under a fresh random mask whose edges all have the same probability, whatever the input.

    It is a block model with a single cluster that all tokens belong to. Nothing about the mask is learned. With
    ``mask_density=0`` and a ``window`` it is the attention of a fixed window.

    With a ``window`` every token also attends to those at most ``window / 2`` places away, as in
    :class:`~sbmt.layers.SBMAttention`. So a random mask with the mean edge probability of an SBM and the same window
    differs from it in which of the other pairs are drawn, and hardly in how many.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        mask_density: Edge probability in [0, 1], of the pairs outside the window if there is one.
        window: Width of the sliding window; 0 means self-loops, None means no window.
        reweight: Whether a drawn edge weighs 1/p times as much, see :class:`~sbmt.layers.SBMAttention`.
        sink: Whether each head learns a logit that takes part in the softmax and has no value.
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
        reweight: bool = False,
        sink: bool = False,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_mask_density(mask_density)
        if window is not None:
            check_window(window)
        check_dropout(dropout)
        check_backend(backend)
        self.d_head, self.n_heads = d_head, n_heads
        self.mask_density, self.window, self.dropout, self.backend = mask_density, window, dropout, backend
        self.reweight = reweight
        self.sink = nn.Parameter(torch.zeros(n_heads)) if sink else None

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
        """Draws a mask and attends along its edges; see :class:`~sbmt.layers.SBMAttention` for arguments."""
        check_attention_inputs(query, key, value)
        shape = batch, heads, n_queries, n_keys = (*query.shape[:3], key.shape[2])
        dtype = torch.promote_types(query.dtype, torch.float32)  # 16 bits would round the probability
        near = None
        if self.window is not None:
            near = sliding_window(shape, self.window, query_mask, key_mask, device=query.device)
        if near is not None and self.mask_density == 0:
            draw_seed(generator)  # so that what is drawn later does not depend on the density
            edges, expected = near, near.density().to(dtype)
        else:
            ones = [query.new_ones(batch, 1, n, 1, dtype=dtype) for n in (n_queries, n_keys)]
            block_matrix = ones[0].new_full((heads, 1, 1), self.mask_density)
            block_model = BlockModel(ones[0], block_matrix, ones[1], query_mask, key_mask)
            edges = sample_edges(block_model, generator=generator)
            expected = block_model.expected_density()  # batch heads
            if near is not None:
                share = near.density().to(dtype)
                edges, expected = edges.union(near), share + (1 - share) * expected
        bias = None
        if self.reweight:
            drawn_with = query.new_full((edges.n_edges,), self.mask_density, dtype=dtype)
            if self.window is not None:
                drawn_with = drawn_with.masked_fill(is_in_window(edges, self.window), 1.0)
            bias = reweighting_bias(drawn_with)
        dropout = self.dropout if self.training else 0.0
        values = edge_attention(
            query,
            key,
            value,
            edges,
            backend=self.backend,
            dropout=dropout,
            generator=generator,
            bias=bias,
            sink=self.sink,
        )
        return AttentionOutput(values, edges.density(), expected, edges if return_edges else None)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return (
            f"d_head={self.d_head}, n_heads={self.n_heads}, mask_density={self.mask_density}, window={self.window}, "
            f"reweight={self.reweight}, sink={self.sink is not None}"
        )
