"""Compares fitted masks with other kinds of masks, in a network that was trained with full attention.

The other masks are tuned to the density of the fitted masks. They are computed densely, to keep the code simple.
"""

import copy
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.block_model.model import smallest_probability
from sbmt.errors import SbmtError
from sbmt.graph.masks import zero_padding
from sbmt.sparsification.convert import DIFFERENT, fitted_layers
from sbmt.sparsification.fit import Heads, MaskQuality, full_attention, measure_masks, seen_calls
from sbmt.types import AttentionOutput

FULL, FITTED = "full attention", "fitted"
Probability = Float[Tensor, "batch heads n m"]
Track = Callable[..., Iterable[Any]]  # a progress bar, such as rich's track(items, description=..., total=...)


class MaskedAttention(nn.Module):
    """Full attention under a mask whose edges are drawn with probabilities that depend on the layer's inputs.

    Edges are reweighted in the same way as those of fitted masks. Pairs of probability 1 are always edges.
    """

    def __init__(
        self, probability: Callable[[Heads], Probability], reweight: bool | float = DIFFERENT["reweight"]
    ) -> None:
        super().__init__()
        self.probability, self.reweight = probability, reweight

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionOutput:
        """Attends like the library's attention layers, but draws from torch's global generator and returns no edges."""
        heads = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))
        real = is_pair(heads)
        with torch.no_grad():
            probability = self.probability(heads)
            is_edge = real & (torch.rand_like(probability) < probability)
        drawn_with = probability.clamp(min=smallest_probability(self.reweight))
        scores = query @ key.mT / query.shape[-1] ** 0.5 - drawn_with.log()
        weights = scores.masked_fill(~is_edge, -torch.inf).softmax(-1).nan_to_num()
        density = is_edge.sum((2, 3)) / real.sum((2, 3)).clamp(min=1)
        return AttentionOutput(weights @ value, density, density)


def is_pair(heads: Heads) -> Bool[Tensor, "batch heads n m"]:
    """Returns a mask of the pairs in which both tokens are real."""
    queries, keys = (torch.ones_like(x[..., :1]) for x in (heads.query, heads.key))
    return (zero_padding(queries, heads.query_mask) @ zero_padding(keys, heads.key_mask).mT).bool()


def random(density: float, heads: Heads) -> Probability:
    """Gives all pairs the same probability."""
    return torch.full(is_pair(heads).shape, density)


def window(n_places: int, heads: Heads) -> Probability:
    """Keeps the keys less than ``n_places`` away. With 1, only the token itself is kept, and with 0, nothing is."""
    queries, keys = (torch.arange(x.shape[2]) for x in (heads.query, heads.key))
    return ((queries[:, None] - keys).abs() < n_places).float().expand(is_pair(heads).shape)


def window_and_ends(n_places: int, heads: Heads) -> Probability:
    """Keeps a window, and the first and last real key, which are [CLS] and [SEP] in BERT."""
    count = is_pair(heads).cumsum(-1)
    is_end = is_pair(heads) & ((count == 1) | (count == count[..., -1:]))
    return window(n_places, heads).maximum(is_end.float())


def oracle(density: float, heads: Heads) -> Probability:
    """Keeps the keys that each query attends to most, which is the best choice for a given number of keys."""
    rank = full_attention(heads).argsort(-1, descending=True).argsort(-1)
    n_kept = (density * is_pair(heads).sum(-1, keepdim=True)).round().clamp(min=1)
    return (rank < n_kept).float()


def ideal_rates(edges_per_query: float, heads: Heads) -> Probability:
    """Gives a pair of attention weight a the probability 1 − exp(−c a), which a fitted block model approximates."""
    return -torch.expm1(-edges_per_query * full_attention(heads))


CONTROLS: dict[str, tuple[Callable[[Any, Heads], Probability], Sequence[Any] | None]] = {
    "random": (random, None),
    "window": (window, range(1, 1 << 16)),
    "window and both ends": (window_and_ends, range(1 << 16)),
    "oracle": (oracle, None),
    "ideal rates": (ideal_rates, [1.01**i for i in range(-600, 1400)]),  # from 0.0026 to a million
}
"""Maps each name to a function from a size to edge probabilities, and the sizes to try, or None to use the density.

The last two controls are computed from full attention, so they save no time.
"""


def tuned(
    name: str, layer: Sequence[Heads], density: float, reweight: bool | float = DIFFERENT["reweight"]
) -> MaskedAttention:
    """Returns the named control, with the size whose density on a layer's inputs is closest to ``density``.

    Density is the expected share of real keys that a mask keeps, averaged over all real queries.
    """
    probability, sizes = CONTROLS[name]
    sizes = sizes or [density]

    def density_at(size: Any) -> float:
        shares = []
        for heads in layer:
            real = is_pair(heads)
            share = (probability(size, heads) * real).sum(-1) / real.sum(-1).clamp(min=1)
            shares.append(share[real.any(-1)])
        return float(torch.cat(shares).mean())

    first = bisect_left(sizes, density, key=density_at)
    nearest = min(sizes[max(0, first - 1) : first + 1], key=lambda size: abs(density_at(size) - density))
    return MaskedAttention(partial(probability, nearest), reweight)


def with_masks(
    model: nn.Module, sparse: nn.Module, tuned_on: Sequence[Any], density: float | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """Yields pairs of a name and a network: with full attention, with fitted masks, and with each other kind of mask.

    The other masks are tuned to ``density`` on the batches ``tuned_on``, by default to that of the fitted masks there.
    """
    yield FULL, model
    yield FITTED, sparse
    density = density or measure_masks(sparse, tuned_on).mean("density")
    seen = [seen_calls(sparse, batch) for batch in tuned_on]
    for name in CONTROLS:
        other = copy.deepcopy(sparse)
        for place, layer in fitted_layers(sparse).items():
            inputs = [heads for calls in seen for heads in calls[place]]
            other.set_submodule(place, tuned(name, inputs, density, layer.reweight))
        yield name, other


def compare(
    model: nn.Module,
    sparse: nn.Module,
    tuned_on: Sequence[Any],
    name: str,
    score: Callable[[nn.Module], Tensor],
    track: Track = lambda items, **_: items,
) -> list[dict[str, Any]]:
    """Returns one row per kind of mask, with its quality on the batches ``tuned_on`` and its effect on test scores.

    ``score`` maps a network to one score per test item. A row contains the mean score as ``name``, the mean loss
    relative to full attention as ``lost``, and the standard error of this loss over items as ``lost_error``.
    """
    rows: list[dict[str, Any]] = []
    full = score(model).double()
    if len(full) < 2:
        raise SbmtError("at least 2 test items to compare masks", len(full), "request more with --examples")
    for kind, masked in track(with_masks(model, sparse, tuned_on), description="masks", total=2 + len(CONTROLS)):
        if kind == FULL:
            continue
        masks = {layer: masked.get_submodule(layer) for layer in fitted_layers(sparse)}
        quality = measure_masks(sparse, tuned_on, masks)
        measures = {field.name: quality.mean(field.name) for field in fields(MaskQuality)}
        scores = score(masked).double()
        lost = full - scores
        loss = {"lost": float(lost.mean()), "lost_error": float(lost.std() / len(lost) ** 0.5)}
        rows.append({"kind": kind, **measures, name: float(scores.mean()), **loss})
    return rows
