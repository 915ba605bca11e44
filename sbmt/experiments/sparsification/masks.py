"""Other masks for a network that was trained with full attention, each tuned to a given density.

All of them are computed densely, to stay simple.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.experiments.sparsification.rates import bisect
from sbmt.graph.masks import zero_padding
from sbmt.sparsification.fit import Heads, full_attention
from sbmt.types import AttentionOutput

BITS, TABLES = range(1, 13), 64
"""Settings of hashing that are tried: bits per table, and the largest number of tables."""
CLUSTERS = 8, 16, 32, 64, 128
"""Numbers of clusters that are tried in k-means."""
NEAR = 1.1
"""The largest factor by which masks whose size comes in steps may miss the given density."""

Mask = tuple[Bool[Tensor, "batch heads n m"], Float[Tensor, "batch heads n m"] | None]
"""Which pairs are edges, and the probability with which each was drawn; None if nothing is random."""


class MaskedAttention(nn.Module):
    """The scores of full attention under a mask that a function computes from the layer's inputs.

    Random edges are reweighted as those of fitted masks are.
    """

    def __init__(self, mask: Callable[[Heads], Mask]) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionOutput:
        """Like any attention of the library, but masks use torch's global generator, and edges are not returned."""
        heads = Heads(query, key, value, options.get("query_mask"), options.get("key_mask"))
        with torch.no_grad():
            is_edge, probability = self.mask(heads)
        real = is_pair(heads)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if probability is not None:
            scores = scores - probability.clamp(min=SMALLEST_PROBABILITY).log()
        is_edge = is_edge & real
        weights = scores.masked_fill(~is_edge, -torch.inf).softmax(-1).nan_to_num()
        density = is_edge.sum((2, 3)) / real.sum((2, 3)).clamp(min=1)
        return AttentionOutput(zero_padding(weights @ value, heads.query_mask), density, density)


Candidate = tuple[MaskedAttention, list[Tensor]]  # with the probabilities of its edges for each of a layer's inputs


def is_pair(heads: Heads) -> Bool[Tensor, "batch heads n m"]:
    """The pairs of real tokens."""
    queries, keys = (torch.ones_like(x[..., :1]) for x in (heads.query, heads.key))
    return (zero_padding(queries, heads.query_mask) @ zero_padding(keys, heads.key_mask).mT).bool()


def n_keys(heads: Heads) -> Float[Tensor, "batch 1 1 1"]:
    """The number of real keys of each example, at least 1."""
    return is_pair(heads)[:, :1].any(2, keepdim=True).sum(-1, keepdim=True).clamp(min=1).float()


def drawn(probability: Float[Tensor, "batch heads n m"]) -> Mask:
    """A mask with these probabilities; pairs of probability 1 are certain."""
    return torch.rand_like(probability) < probability, probability


def density_of(layer: Sequence[Heads], found: Sequence[Float[Tensor, "batch heads n m"]]) -> float:
    """The density of masks, or of their probabilities: per query the mean over real keys, then over queries."""
    return per_query(layer, [x / n_keys(heads) for heads, x in zip(layer, found, strict=True)])


def per_query(layer: Sequence[Heads], found: Sequence[Float[Tensor, "batch heads n m"]]) -> float:
    """The mean over real queries of sums over real keys."""
    total = sum(float((x * is_pair(heads)).sum()) for heads, x in zip(layer, found, strict=True))
    return total / sum(float(is_pair(heads).any(-1).sum()) for heads in layer)


def best(layer: Sequence[Heads], candidates: Iterable[Candidate], density: float) -> MaskedAttention:
    """The mask that covers the most attention among those near the density, or else the one nearest to it."""
    found: list[tuple[MaskedAttention, float, float]] = []
    for mask, edges in candidates:
        seen = [full_attention(heads) * edge for heads, edge in zip(layer, edges, strict=True)]
        found.append((mask, density_of(layer, edges), per_query(layer, seen)))
    near = [one for one in found if density / NEAR <= one[1] <= density * NEAR]
    chosen = max(near, key=lambda one: one[2]) if near else min(found, key=lambda one: abs(one[1] - density))
    return chosen[0]


# --- masks that do not depend on tokens ------------------------------------------------------------------------------


def local(reach: int, probability: float = 0.0) -> MaskedAttention:
    """Keys at most ``reach`` places away, and others at random; reach 0 is the token itself, and −1 none."""

    def mask(heads: Heads) -> Mask:
        pairs = is_pair(heads)
        place = torch.arange(pairs.shape[2])[:, None] - torch.arange(pairs.shape[3])
        return drawn(torch.where(place.abs() <= reach, 1.0, probability).expand(pairs.shape))

    return MaskedAttention(mask)


def random(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Any keys."""
    return local(-1, density)


def window(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The nearest keys on either side."""
    return local(max(0, _nearest_reach(local, layer, density)))


def window_and_random(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Half of the keys near, the other half random."""
    reach = max(0, _nearest_reach(local, layer, density / 2))
    inside = _density(local(reach), layer)
    return local(reach, min(1.0, max(0.0, (density - inside) / max(1e-12, 1 - inside))))


def window_and_ends(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The first and the last key, such as [CLS] and [SEP] in a BERT, and the nearest otherwise."""

    def mask(reach: int) -> MaskedAttention:
        return MaskedAttention(lambda heads: (local(reach).mask(heads)[0] | _ends(heads), None))

    return mask(_nearest_reach(mask, layer, density))


def _ends(heads: Heads) -> Bool[Tensor, "batch 1 1 m"]:
    real = is_pair(heads)[:, :1].any(2, keepdim=True)  # batch 1 1 m
    return real & ((real.cumsum(-1) == 1) | (real.cumsum(-1) == real.sum(-1, keepdim=True)))


def _density(attention: MaskedAttention, layer: Sequence[Heads]) -> float:
    return density_of(layer, [attention.mask(heads)[0].float() for heads in layer])


def _nearest_reach(make: Callable[[int], MaskedAttention], layer: Sequence[Heads], density: float) -> int:
    """The reach, from −1 on, of the mask whose density is nearest."""
    reach, last, found = -1, inf, _density(make(-1), layer)
    while density > found != last:
        reach, last, found = reach + 1, found, _density(make(reach + 1), layer)
    return reach - (abs(last - density) < abs(found - density))


# --- hashing ---------------------------------------------------------------------------------------------------------


def hashed(n_bits: int, n_tables: int) -> MaskedAttention:
    r"""Pairs that share a bucket in at least one of L tables, each of K random hyperplanes (SimHash).

    Keys are centred, which changes no attention, and get one more coordinate that makes them equally long, so that a
    smaller angle is a larger score (Neyshabur and Srebro, 2015; MagicPIG, 2024, weights the drawn keys in the same
    way). At an angle of θ a pair is drawn with probability $1 - (1 - (1 - θ/π)^K)^L$.
    """

    def mask(heads: Heads) -> Mask:
        query, key = directions_of(heads)
        planes = torch.randn(heads.query.shape[1], query.shape[-1], n_tables * n_bits)
        codes = ((x @ planes > 0).unflatten(-1, (n_tables, n_bits)) for x in (query, key))
        of_query, of_key = ((code * 2 ** torch.arange(n_bits)).sum(-1) for code in codes)  # batch heads n tables
        is_edge = torch.zeros_like(is_pair(heads))
        for table in range(n_tables):
            is_edge |= of_query[..., table, None] == of_key[..., None, :, table]
        return is_edge, collision(query, key, n_bits, n_tables)

    return MaskedAttention(mask)


def directions_of(heads: Heads) -> tuple[Tensor, Tensor]:
    """Unit vectors whose angles order the keys of a query as their scores do."""
    key = zero_padding(heads.key, heads.key_mask)
    key = zero_padding(key - key.sum(2, keepdim=True) / n_keys(heads), heads.key_mask)
    key = key / key.norm(dim=-1).amax(-1)[..., None, None].clamp(min=1e-12)
    rest = (1 - key.square().sum(-1, keepdim=True)).clamp(min=0).sqrt()
    return nn.functional.normalize(nn.functional.pad(heads.query, (0, 1)), dim=-1), torch.cat([key, rest], -1)


def collision(query: Tensor, key: Tensor, n_bits: int, n_tables: int) -> Float[Tensor, "batch heads n m"]:
    """The probability that two directions share a bucket in at least one table."""
    angle = (query @ key.mT).clamp(-1, 1).acos()
    return 1 - (1 - (1 - angle / torch.pi) ** n_bits) ** n_tables


def hashing(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Locality-sensitive hashing, with the number of bits that covers the most attention."""
    directions, candidates = [directions_of(heads) for heads in layer], []
    for n_bits in BITS:
        once = density_of(layer, [collision(*pair, n_bits, 1) for pair in directions])
        n_tables = min(TABLES, max(1, round(density / once)))
        candidates.append((hashed(n_bits, n_tables), [collision(*pair, n_bits, n_tables) for pair in directions]))
    return best(layer, candidates, density)


# --- k-means ---------------------------------------------------------------------------------------------------------


def clustered(centroids: Float[Tensor, "heads clusters d"], n_probed: int) -> MaskedAttention:
    """Keys in the ``n_probed`` clusters that a query scores highest; a key is in that of the nearest centroid."""

    def mask(heads: Heads) -> Mask:
        cluster = torch.cdist(heads.key, centroids.expand(len(heads.key), -1, -1, -1)).argmin(-1)  # batch heads m
        probed = (heads.query @ centroids.mT).topk(n_probed, -1).indices
        is_probed = torch.zeros(*probed.shape[:3], centroids.shape[1], dtype=torch.bool).scatter(-1, probed, True)
        return is_probed.gather(-1, cluster[:, :, None].expand(-1, -1, probed.shape[2], -1)), None

    return MaskedAttention(mask)


def k_means(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Clusters of keys, with the number of clusters that covers the most attention."""
    candidates = []
    for n_clusters in CLUSTERS:
        centroids = _centroids(layer, n_clusters)
        n_probed = min(n_clusters, max(1, round(density * n_clusters)))
        for probed in {n_probed, max(1, n_probed - 1), min(n_clusters, n_probed + 1)}:
            mask = clustered(centroids, probed)
            candidates.append((mask, [mask.mask(heads)[0].float() for heads in layer]))
    return best(layer, candidates, density)


def _centroids(layer: Sequence[Heads], n_clusters: int, rounds: int = 20) -> Float[Tensor, "heads clusters d"]:
    """Lloyd's k-means of all real keys, head by head, from keys drawn at random."""
    keys = torch.cat([heads.key.transpose(0, 1).flatten(1, 2) for heads in layer], 1)
    keys = keys[:, torch.cat([is_pair(heads)[:, 0].any(1).flatten() for heads in layer])]
    centroids = keys[:, torch.randperm(keys.shape[1])[:n_clusters]]
    for _ in range(rounds):
        cluster = torch.cdist(keys, centroids).argmin(-1)  # heads keys
        count = torch.zeros(centroids.shape[:2]).scatter_add(1, cluster, torch.ones_like(cluster, dtype=torch.float))
        total = torch.zeros_like(centroids).scatter_add(1, cluster[..., None].expand_as(keys), keys)
        centroids = torch.where(count[..., None] > 0, total / count.clamp(min=1)[..., None], centroids)
    return centroids


# --- masks that depend on the attention itself -----------------------------------------------------------------------


def oracle(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """The keys that each query attends most, which is the best choice of this many keys per query."""

    def mask(heads: Heads) -> Mask:
        order = full_attention(heads).argsort(-1, descending=True)
        is_first = torch.arange(order.shape[-1]) < (density * n_keys(heads)).round().clamp(min=1)
        return torch.empty_like(order, dtype=torch.bool).scatter_(-1, order, is_first.expand_as(order)), None

    return MaskedAttention(mask)


def at_rates(edges_per_query: float) -> MaskedAttention:
    """Drawn at rates in proportion to attention, 1 − exp(−c a), which the fit of a block model approximates."""
    return MaskedAttention(lambda heads: drawn(-torch.expm1(-edges_per_query * full_attention(heads))))


def ideal_rates(layer: Sequence[Heads], density: float) -> MaskedAttention:
    """Pairs drawn in proportion to attention, at this density."""
    weights = [full_attention(heads) for heads in layer]
    return at_rates(bisect(lambda c: density_of(layer, [-torch.expm1(-c * a) for a in weights]), density, 0, 1e6, 60))


Control = Callable[[Sequence[Heads], float], MaskedAttention]
CONTROLS: dict[str, Control] = {
    "random": random,
    "window": window,
    "window and random": window_and_random,
    "hashing": hashing,
    "k-means": k_means,
    "ideal rates": ideal_rates,
    "oracle": oracle,
}
"""By their names in tables: functions of the inputs of a layer and of the density."""
