"""Other masks for a network that was trained with full attention; all are dense inside, so that they stay simple."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.graph.masks import zero_padding
from sbmt.sparsification.fit import Heads, full_attention
from sbmt.types import AttentionOutput


@dataclass(frozen=True, eq=False)
class Mask:
    """Which pairs are edges, and with what probability each of them was drawn; None: nothing is random."""

    is_edge: Bool[Tensor, "batch heads n m"]
    probability: Float[Tensor, "batch heads n m"] | None = None


class MaskedAttention(nn.Module, ABC):
    """Full attention's scores under another mask; edges that were drawn are reweighted as those of fitted masks are."""

    @abstractmethod
    def mask(self, heads: Heads) -> Mask:
        """The mask; what it says of padded keys is ignored."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """As every attention of the library; masks come from torch's global generator, and edges are not returned."""
        heads = Heads(query, key, value, query_mask, key_mask)
        with torch.no_grad():
            mask = self.mask(heads)
        real = is_pair(heads)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if mask.probability is not None:
            scores = scores - mask.probability.clamp(min=SMALLEST_PROBABILITY).log()
        is_edge = mask.is_edge & real
        weights = scores.masked_fill(~is_edge, -torch.inf).softmax(-1).nan_to_num()
        density = is_edge.sum((2, 3)) / real.sum((2, 3)).clamp(min=1)
        return AttentionOutput(zero_padding(weights @ value, query_mask), density, density)


def is_pair(heads: Heads) -> Bool[Tensor, "batch heads n m"]:
    """The pairs of real tokens."""
    batch, n_heads, n_queries, _ = heads.query.shape
    pairs = torch.ones(batch, n_heads, n_queries, heads.key.shape[2], dtype=torch.bool, device=heads.query.device)
    if heads.query_mask is not None:
        pairs &= heads.query_mask[:, None, :, None]
    if heads.key_mask is not None:
        pairs &= heads.key_mask[:, None, None, :]
    return pairs


def n_keys(heads: Heads) -> Float[Tensor, "batch 1 1 1"]:
    """How many real keys each example has."""
    if heads.key_mask is None:
        return torch.full((heads.key.shape[0], 1, 1, 1), float(heads.key.shape[2]))
    return heads.key_mask.sum(1).clamp(min=1).float()[:, None, None, None]


def drawn(probability: Float[Tensor, "batch heads n m"]) -> Mask:
    """A mask with these probabilities; pairs of probability 1 are certain."""
    return Mask(torch.rand_like(probability) < probability, probability)


class OracleTop(MaskedAttention):
    """The keys that each query attends most: the best that as many keys for every query can do."""

    def __init__(self, density: float) -> None:
        super().__init__()
        self.density = density

    def mask(self, heads: Heads) -> Mask:
        """The largest weights of every row."""
        weights = full_attention(heads)
        rank = weights.argsort(-1, descending=True).argsort(-1)
        return Mask(rank < (self.density * n_keys(heads)).round().clamp(min=1))


class IdealRates(MaskedAttention):
    """Drawn at rates in proportion to attention: what the fit of a block model aims at."""

    def __init__(self, edges_per_query: float) -> None:
        super().__init__()
        self.edges_per_query = edges_per_query

    def mask(self, heads: Heads) -> Mask:
        """1 − exp(−c a)."""
        return drawn(-torch.expm1(-self.edges_per_query * full_attention(heads)))


class Local(MaskedAttention):
    """Keys at most ``reach`` places away, and others at random; reach 0 is the token itself, and −1 none."""

    def __init__(self, reach: int, probability: float) -> None:
        super().__init__()
        self.reach, self.probability = reach, probability

    def mask(self, heads: Heads) -> Mask:
        """Certain near the diagonal, elsewhere all alike."""
        pairs = is_pair(heads)
        place = torch.arange(pairs.shape[2])[:, None] - torch.arange(pairs.shape[3])
        return drawn(torch.where(place.abs() <= self.reach, 1.0, self.probability).expand(pairs.shape))


class Hashed(MaskedAttention):
    r"""Pairs that share a bucket in at least one of L tables, each of K random hyperplanes (SimHash).

    Keys are centred, which changes no attention, and get one more coordinate that makes them equally long, so that a
    smaller angle is a larger score (Neyshabur and Srebro, 2015; MagicPIG, 2024, weights the drawn keys in the same
    way). At an angle of θ a pair is drawn with probability $1 - (1 - (1 - θ/π)^K)^L$.
    """

    def __init__(self, n_bits: int, n_tables: int) -> None:
        super().__init__()
        self.n_bits, self.n_tables = n_bits, n_tables

    def mask(self, heads: Heads) -> Mask:
        """One draw of all hyperplanes."""
        query, key = directions_of(heads)
        planes = torch.randn(heads.query.shape[1], query.shape[-1], self.n_tables * self.n_bits)
        codes = ((x @ planes > 0).unflatten(-1, (self.n_tables, self.n_bits)) for x in (query, key))
        bit = 2 ** torch.arange(self.n_bits)
        of_query, of_key = ((code * bit).sum(-1) for code in codes)  # batch heads n tables
        is_edge = torch.zeros_like(is_pair(heads))
        for table in range(self.n_tables):
            is_edge |= of_query[..., table, None] == of_key[..., None, :, table]
        return Mask(is_edge, collision(query, key, self.n_bits, self.n_tables))


def directions_of(heads: Heads) -> tuple[Tensor, Tensor]:
    """Unit vectors whose angles order the keys of a query as their scores do."""
    key, query = heads.key, heads.query
    if heads.key_mask is not None:
        key = key.masked_fill(~heads.key_mask[:, None, :, None], 0.0)
    key = zero_padding(key - key.sum(2, keepdim=True) / n_keys(heads), heads.key_mask)
    longest = key.norm(dim=-1).amax(-1)[..., None, None].clamp(min=1e-12)
    key = key / longest
    rest = (1 - key.square().sum(-1, keepdim=True)).clamp(min=0).sqrt()
    return nn.functional.normalize(nn.functional.pad(query, (0, 1)), dim=-1), torch.cat([key, rest], -1)


def collision(query: Tensor, key: Tensor, n_bits: int, n_tables: int) -> Float[Tensor, "batch heads n m"]:
    """The probability that two directions share a bucket in at least one table."""
    angle = (query @ key.mT).clamp(-1, 1).acos()
    return 1 - (1 - (1 - angle / torch.pi) ** n_bits) ** n_tables


class Clustered(MaskedAttention):
    """Keys in the clusters that a query scores highest; k-means has found the clusters beforehand.

    Args:
        centroids: ``(heads, clusters, d)``.
        n_probed: How many clusters a query reads.
    """

    def __init__(self, centroids: Tensor, n_probed: int) -> None:
        super().__init__()
        self.register_buffer("centroids", centroids)
        self.n_probed = n_probed

    def mask(self, heads: Heads) -> Mask:
        """A key is in the cluster of the nearest centroid."""
        centroids = self.get_buffer("centroids")
        cluster = torch.cdist(heads.key, centroids.expand(len(heads.key), -1, -1, -1)).argmin(-1)  # batch heads m
        probed = (heads.query @ centroids.mT).topk(self.n_probed, -1).indices
        is_probed = torch.zeros(*probed.shape[:3], centroids.shape[1], dtype=torch.bool).scatter(-1, probed, True)
        return Mask(is_probed.gather(-1, cluster[:, :, None].expand(-1, -1, probed.shape[2], -1)))
