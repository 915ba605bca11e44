"""Masks for one layer with as many edges as asked for, each kind tuned on what the layer was given in training."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.experiments.sparsification.masked import (
    Clustered,
    Hashed,
    IdealRates,
    Local,
    MaskedAttention,
    OracleTop,
    collision,
    directions_of,
    is_pair,
    n_keys,
)
from sbmt.sparsification.fit import Heads, full_attention

BITS, TABLES = range(1, 13), 64
"""What is tried of hashing: bits of a table, and the most tables."""
CLUSTERS = 8, 16, 32, 64, 128
"""What is tried of k-means."""
NEAR = 1.1
"""How many times the density asked for, or the inverse of that, a mask may have whose size comes in steps."""


def random(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Any keys."""
    return Local(-1, density)


def window(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The nearest keys on either side."""
    return Local(_reach(layer, density), 0.0)


def window_and_random(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Half of the keys near, the other half random."""
    reach = _reach(layer, density / 2)
    return Local(reach, _outside(layer, reach, density))


def hashing(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Locality-sensitive hashing, with the number of bits that sees the most attention."""
    best: dict[tuple[int, int], tuple[float, float]] = {}
    directions = [directions_of(heads) for heads in layer]
    for n_bits in BITS:
        once = _mean(layer, [collision(*pair, n_bits, 1) for pair in directions])
        n_tables = min(TABLES, max(1, round(density / once)))
        found = [collision(*pair, n_bits, n_tables) for pair in directions]
        seen = [full_attention(heads) * p for heads, p in zip(layer, found, strict=True)]
        best[n_bits, n_tables] = _mean(layer, found), _per_query(layer, seen)
    return Hashed(*_best(best, density))


def k_means(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Clusters of keys, in the number that sees the most attention."""
    best: dict[tuple[int, int], tuple[float, float]] = {}
    masks: dict[tuple[int, int], MaskedAttention] = {}
    for n_clusters in CLUSTERS:
        centroids = _centroids(layer, n_clusters)
        n_probed = min(n_clusters, max(1, round(density * n_clusters)))
        for probed in {n_probed, max(1, n_probed - 1), min(n_clusters, n_probed + 1)}:
            mask = masks[n_clusters, probed] = Clustered(centroids, probed)
            edges = [mask.mask(heads).is_edge.float() for heads in layer]
            seen = [full_attention(heads) * edge for heads, edge in zip(layer, edges, strict=True)]
            best[n_clusters, probed] = _mean(layer, edges), _per_query(layer, seen)
    return masks[_best(best, density)]


def oracle(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The most attended keys."""
    return OracleTop(density)


def ideal_rates(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Drawn in proportion to attention."""
    weights = [full_attention(heads) for heads in layer]
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        is_less = _mean(layer, [-torch.expm1(-middle * a) for a in weights]) < density
        low, high = (middle, high) if is_less else (low, middle)
    return IdealRates(high)


CONTROLS: dict[str, Callable[[Sequence[Heads], float], MaskedAttention]] = {
    "random": random,
    "window": window,
    "window and random": window_and_random,
    "hashing": hashing,
    "k-means": k_means,
    "ideal rates": ideal_rates,
    "oracle": oracle,
}
"""By the names that tables give them: a function of what a layer was given, and of the density wanted."""


def _mean(layer: Sequence[Heads], found: Sequence[Float[Tensor, "batch heads n m"]]) -> float:
    """The density of masks, or of their probabilities: per query the mean over real keys, then over queries."""
    return _per_query(layer, [x / n_keys(heads) for heads, x in zip(layer, found, strict=True)])


def _per_query(layer: Sequence[Heads], found: Sequence[Float[Tensor, "batch heads n m"]]) -> float:
    """The mean over real queries of sums over real keys."""
    total = sum(float((x * is_pair(heads)).sum()) for heads, x in zip(layer, found, strict=True))
    return total / sum(float(is_pair(heads).any(-1).sum()) for heads in layer)


def _best(found: dict[tuple[int, int], tuple[float, float]], density: float) -> tuple[int, int]:
    """The settings that see the most among those near the density, or else those nearest to it."""
    near = {key: seen for key, (here, seen) in found.items() if density / NEAR <= here <= density * NEAR}
    if near:
        return max(near, key=lambda key: near[key])
    return min(found, key=lambda key: abs(found[key][0] - density))


def _band(layer: Sequence[Heads], reach: int) -> float:
    """The density of a window."""
    return _mean(layer, [Local(reach, 0.0).mask(heads).is_edge.float() for heads in layer])


def _reach(layer: Sequence[Heads], density: float) -> int:
    """The reach of the window whose density is nearest."""
    reach, last = 0, _band(layer, 0)
    while last < density:
        following = _band(layer, reach + 1)
        if abs(following - density) >= abs(last - density):
            break
        reach, last = reach + 1, following
    return reach


def _outside(layer: Sequence[Heads], reach: int, density: float) -> float:
    """The probability of pairs outside a window that brings all pairs together to a density."""
    inside = _band(layer, reach)
    return min(1.0, max(0.0, (density - inside) / max(1e-12, 1 - inside)))


def _centroids(layer: Sequence[Heads], n_clusters: int, rounds: int = 20) -> Float[Tensor, "heads clusters d"]:
    """Lloyd's k-means of all real keys, head by head, from keys drawn at random."""
    keys = torch.cat([heads.key.transpose(0, 1).flatten(1, 2) for heads in layer], 1)
    real = torch.cat([is_pair(heads)[:, 0].any(1).flatten() for heads in layer])
    keys = keys[:, real]
    centroids = keys[:, torch.randperm(keys.shape[1])[:n_clusters]]
    for _ in range(rounds):
        nearest = torch.cdist(keys, centroids).argmin(-1)  # heads keys
        count = torch.zeros(centroids.shape[:2]).scatter_add(1, nearest, torch.ones_like(nearest, dtype=torch.float))
        total = torch.zeros_like(centroids).scatter_add(1, nearest[..., None].expand_as(keys), keys)
        centroids = torch.where(count[..., None] > 0, total / count.clamp(min=1)[..., None], centroids)
    return centroids
