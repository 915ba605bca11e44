"""Other masks for a network that was trained with full attention, each tuned to a given density.

All of them are computed densely, to stay simple.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.graph.masks import zero_padding
from sbmt.sparsification.fit import Heads, full_attention
from sbmt.types import AttentionOutput

Probability = Float[Tensor, "batch heads n m"]
PLACES = range(1 << 16)
RATES = [1.01**i for i in range(-600, 1400)]  # from 0.0026 to a million
"""Sizes of windows, and edges per query at ideal rates, of which those are chosen that come nearest to a density."""


class MaskedAttention(nn.Module):
    """Full attention's scores under a mask whose edges are drawn with probabilities computed from the layer's inputs.

    Edges are reweighted as those of fitted masks are; pairs of probability 1 are certain.
    """

    def __init__(self, probability: Callable[[Heads], Probability]) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionOutput:
        """Like any attention of the library, but masks use torch's global generator, and edges are not returned."""
        heads = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))
        real = is_pair(heads)
        with torch.no_grad():
            probability = self.probability(heads)
            is_edge = real & (torch.rand_like(probability) < probability)
        scores = query @ key.mT / query.shape[-1] ** 0.5 - probability.clamp(min=SMALLEST_PROBABILITY).log()
        weights = scores.masked_fill(~is_edge, -torch.inf).softmax(-1).nan_to_num()
        density = is_edge.sum((2, 3)) / real.sum((2, 3)).clamp(min=1)
        return AttentionOutput(zero_padding(weights @ value, heads.query_mask), density, density)


def is_pair(heads: Heads) -> Bool[Tensor, "batch heads n m"]:
    """The pairs of real tokens."""
    queries, keys = (torch.ones_like(x[..., :1]) for x in (heads.query, heads.key))
    return (zero_padding(queries, heads.query_mask) @ zero_padding(keys, heads.key_mask).mT).bool()


def density_of(attention: MaskedAttention, layer: Sequence[Heads]) -> float:
    """The expected share of real keys that a mask keeps, averaged over all real queries of a layer's inputs."""
    shares = []
    for heads in layer:
        real = is_pair(heads)
        share = (attention.probability(heads) * real).sum(-1) / real.sum(-1).clamp(min=1)
        shares.append(share[real.any(-1)])
    return float(torch.cat(shares).mean())


def nearest(
    make: Callable[[Any], MaskedAttention], sizes: Sequence[Any], layer: Sequence[Heads], density: float
) -> MaskedAttention:
    """The mask whose density is nearest to the one given, among those of increasing sizes."""
    first = bisect_left(sizes, density, key=lambda size: density_of(make(size), layer))
    candidates = map(make, sizes[max(0, first - 1) : first + 1])
    return min(candidates, key=lambda attention: abs(density_of(attention, layer) - density))


def random(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Any keys."""
    return MaskedAttention(lambda heads: torch.full(is_pair(heads).shape, density))


def near(n_places: int) -> MaskedAttention:
    """Keys less than ``n_places`` away: 1 is the token itself, and 0 none."""

    def probability(heads: Heads) -> Probability:
        queries, keys = (torch.arange(x.shape[2]) for x in (heads.query, heads.key))
        return ((queries[:, None] - keys).abs() < n_places).float().expand(is_pair(heads).shape)

    return MaskedAttention(probability)


def window(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The nearest keys on either side."""
    return nearest(near, PLACES[1:], layer, density)


def window_and_ends(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The first and the last key, such as [CLS] and [SEP] in BERT, and beyond these the nearest keys."""

    def make(n_places: int) -> MaskedAttention:
        return MaskedAttention(lambda heads: near(n_places).probability(heads).maximum(ends(heads)))

    return nearest(make, PLACES, layer, density)


def ends(heads: Heads) -> Probability:
    """1 for the first and the last real key of each query, and 0 for others."""
    count = is_pair(heads).cumsum(-1)
    return (is_pair(heads) & ((count == 1) | (count == count[..., -1:]))).float()


def oracle(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The keys that each query attends most, which is the best choice of this many keys per query."""

    def probability(heads: Heads) -> Probability:
        rank = full_attention(heads).argsort(-1, descending=True).argsort(-1)
        n_kept = (density * is_pair(heads).sum(-1, keepdim=True)).round().clamp(min=1)
        return (rank < n_kept).float()

    return MaskedAttention(probability)


def at_rates(edges_per_query: float) -> MaskedAttention:
    """Drawn at rates in proportion to attention, 1 − exp(−c a), which the fit of a block model approximates."""
    return MaskedAttention(lambda heads: -torch.expm1(-edges_per_query * full_attention(heads)))


def ideal_rates(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Pairs drawn in proportion to attention."""
    return nearest(at_rates, RATES, layer, density)


Control = Callable[[Sequence[Heads], float], MaskedAttention]
CONTROLS: dict[str, Control] = {
    "random": random,
    "window": window,
    "window and both ends": window_and_ends,
    "oracle": oracle,
    "ideal rates": ideal_rates,
}
"""By their names in tables: functions of the inputs of a layer and of the density.

The last two are computed from full attention, so they save nothing.
"""
