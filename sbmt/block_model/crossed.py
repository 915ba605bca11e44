"""Block models whose clusters come from crossed partitions, without an array of all tokens by all clusters."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from sbmt.block_model.model import BlockModel, in_range
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import zero_padding
from sbmt.kernels import operators
from sbmt.kernels.operators import can_run_on
from sbmt.types import full_precision

CHUNK = 16  # number of queries processed at a time in sums over causal pairs
LARGEST_RATE = 1e15  # the largest entry in the block matrix of one partition; a rate is a product of two entries
Chosen = tuple[Tensor, Tensor]
"""The parts of tokens (int16) and the memberships in these parts, both ``(batch, heads, n, 2 · n_partitions)``."""


def part_memberships(logits: Float[Tensor, "batch heads partitions size n"]) -> Chosen:
    """Returns the two parts with the largest logits in each partition, in ascending order, and the logits' softmax.

    Part a of partition f has index f · size + a. A partition with a single part lists it twice, with memberships of ½.
    """
    by_partition = logits.movedim(4, 2)  # batch heads n partitions size
    part = by_partition.detach().topk(min(2, by_partition.shape[-1]), -1).indices.sort(-1).values
    part = part.expand(*part.shape[:-1], 2)
    larger = by_partition.gather(-1, part).diff(dim=-1)  # by how much the second logit exceeds the first
    weight = torch.cat([-larger, larger], -1).sigmoid().flatten(-2)
    first = by_partition.shape[-1] * torch.arange(by_partition.shape[-2], device=logits.device)[:, None]
    return (part + first).flatten(-2).to(torch.int16), weight


def choose_parts(clusters: Tensor, tokens: Tensor, n_partitions: int) -> Chosen:
    """Applies :func:`part_memberships` to tokens, whose logits are their products with the clusters."""
    if can_run_on(tokens.device):
        part, weight = operators.choose_parts(clusters, tokens, n_partitions)
        return part, weight
    return part_memberships((clusters @ tokens.mT).unflatten(2, (n_partitions, -1)))


class CrossedModel(BlockModel):
    r"""A :class:`~sbmt.block_model.model.BlockModel` in which each group of clusters crosses two partitions.

    For memberships $\hat Q^f, \hat K^f$ in the s parts of partition f and blocks $S^f$ of size s × s, rates are

    $$r_{ij} = \sum_{g} \big(\hat Q^{2g}_i S^{2g} \hat K^{2g\top}_j\big) \big(\hat Q^{2g+1}_i S^{2g+1}
    \hat K^{2g+1\top}_j\big), \qquad p_{ij} = 1 - e^{-r_{ij}}.$$

    This is a block model under the Poisson link whose clusters are pairs of parts, s² per group. A token's membership
    in a pair is the product of its memberships in the two parts, and the group's block of S is the Kronecker product of
    the two $S^f$. Dense memberships are computed on request; drawing edges and computing rates do not need them.

    The arguments are the parts and memberships of queries and keys that :func:`part_memberships` returns; the $S^f$,
    ``(heads, partitions, s, s)``; two masks and ``causal``, which must already be checked; and ``rates``, the
    :attr:`part_rates` if they are known, in which case memberships of padding must already be 0.
    """

    def __init__(
        self, query: Chosen, part_blocks: Tensor, key: Chosen, query_mask: Any, key_mask: Any, causal: bool = False,
        rates: Tensor | None = None
    ) -> None:  # fmt: skip
        self.link, self.query_mask, self.key_mask, self.causal = "poisson", query_mask, key_mask, causal
        self.query_part, self.key_part, self._rates = query[0], key[0], rates
        self.shape, self.device = (*query[0].shape[:3], key[0].shape[2]), part_blocks.device
        self._query, self._key = query[1], key[1]
        if rates is None:
            self._query, self._key = zero_padding(query[1], query_mask), zero_padding(key[1], key_mask)
        self.part_blocks = part_blocks
        if not part_blocks.is_cuda:  # checks would synchronise with a GPU
            self._query = in_range("query_membership", self._query, 1.0)
            self._key = in_range("key_membership", self._key, 1.0)
            self.part_blocks = in_range("block_matrix", part_blocks, LARGEST_RATE)

    @property
    def n_clusters(self) -> int:
        """The number of pairs of parts, k."""
        return self.part_blocks.shape[1] // 2 * self.part_blocks.shape[2] ** 2

    @property
    def block_matrix(self) -> Float[Tensor, "heads k k"]:  # type: ignore[override]
        """The full block matrix S, including the zeros between groups."""
        first, second = self.part_blocks[:, 0::2], self.part_blocks[:, 1::2]
        crossed = first[:, :, :, None, :, None] * second[:, :, None, :, None, :]
        return torch.stack([torch.block_diag(*blocks) for blocks in crossed.flatten(4, 5).flatten(2, 3)])

    @property
    def query_membership(self) -> Float[Tensor, "batch heads n_queries k"]:  # type: ignore[override]
        """Memberships of queries in all pairs of parts; recomputed at each access, like S and the keys' memberships."""
        return self._crossed(self.query_part, self._query)

    @property
    def key_membership(self) -> Float[Tensor, "batch heads n_keys k"]:  # type: ignore[override]
        """Memberships of keys in all pairs of parts."""
        return self._crossed(self.key_part, self._key)

    @property
    def factors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The factors of all rates: parts and memberships of queries, blocks, and parts and memberships of keys."""
        return self.query_part, self._query, self.part_blocks, self.key_part, self._key

    @property
    def part_rates(self) -> Float[Tensor, "batch heads n_queries parts"]:
        r"""$\hat Q^f S^f$ for each partition f; products of two such rows are a query's rates to a group's clusters."""
        if self._rates is not None:
            return self._rates
        x = self._in_parts(self.query_part, self._query).unflatten(-1, self.part_blocks.shape[1:3])
        with full_precision(x):
            return (x.transpose(2, 3) @ self.part_blocks).transpose(2, 3).flatten(3)

    def sum_of_rates(self) -> Float[Tensor, "batch heads"]:
        r"""Sums all rates, using the total memberships of queries and keys in each pair of parts.

        With $N_{ac} = \sum_i \hat Q^{2g}_{ia} \hat Q^{2g+1}_{ic}$ and the same sum $M$ over keys, the result is
        $\sum_g \langle S^{2g\top} N S^{2g+1}, M \rangle$.

        Cost: O(n g s² + g s³).
        """
        with full_precision(self._query):
            if self.causal:
                return self._causal_sum_of_rates()
            query, key = self._pair_totals(self.query_part, self._query), self._pair_totals(self.key_part, self._key)
            reached = self.part_blocks[:, 0::2].mT @ query @ self.part_blocks[:, 1::2]
            return (reached * key).sum((2, 3, 4))

    def _causal_sum_of_rates(self) -> Float[Tensor, "batch heads"]:
        """Sums rates to keys that are not later, by totals for earlier chunks and by pairs in the query's own chunk.

        Cost: O(n g s (chunk + s)).
        """

        def in_chunks(part: Tensor, weight: Tensor, before: int) -> Float[Tensor, "batch heads chunks f chunk s"]:
            padded = pad(self._in_parts(part, weight), (0, 0, before, -self.shape[3] % CHUNK))
            return padded.unflatten(3, self.part_blocks.shape[1:3]).unflatten(2, (-1, CHUNK)).transpose(3, 4)

        rates = in_chunks(self.query_part, self._query, self.offset) @ self.part_blocks[:, None]
        key = in_chunks(self.key_part, self._key, 0)
        here = (rates @ key.mT).tril()  # for keys in the query's chunk
        seen = pad(key[:, :, :, 0::2].mT @ key[:, :, :, 1::2], (0,) * 6 + (1, -1)).cumsum(2)  # for earlier chunks
        reached = rates[:, :, :, 0::2].mT @ rates[:, :, :, 1::2]
        return (here[:, :, :, 0::2] * here[:, :, :, 1::2]).sum((2, 3, 4, 5)) + (reached * seen).sum((2, 3, 4, 5))

    def edge_rate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """Returns the rates of the given edges, without exploration, in O(n · parts + edges)."""
        self.check_edges(edges)
        if can_run_on(self.device):
            return operators.edge_rate(*self.factors, edges.row_ptr, edges.keys)
        rates, part, weight = (x.flatten(0, 2) for x in (self.part_rates, self.key_part.long(), self._key))
        keys = edges.key_rows()
        of_parts = rates.flatten()[edges.rows()[:, None] * rates.shape[1] + part[keys]] * weight[keys]  # edges chosen
        first, second = of_parts.unflatten(1, (-1, 2, 2)).sum(-1).unbind(-1)
        return (first * second).sum(-1)

    def _pair_totals(self, part: Tensor, weight: Tensor) -> Float[Tensor, "batch heads g s s"]:
        """Sums the memberships of each graph's tokens in every pair of parts."""
        if can_run_on(self.device):
            return operators.pair_totals(part, weight, self.part_blocks.shape[2])
        first, second = self._halves(part, weight)
        return first.permute(0, 1, 3, 4, 2) @ second.transpose(2, 3)

    def _in_parts(self, part: Tensor, weight: Tensor) -> Tensor:
        """Returns memberships in all parts as a dense array."""
        n_parts = self.part_blocks.shape[1] * self.part_blocks.shape[2]
        return weight.new_zeros(*weight.shape[:-1], n_parts).scatter_add(-1, part.long(), weight)

    def _halves(self, part: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        """Returns memberships in the first and the second partition of each group, ``(batch, heads, n, g, s)``."""
        return self._in_parts(part, weight).unflatten(-1, (-1, 2, self.part_blocks.shape[2])).unbind(-2)

    def _crossed(self, part: Tensor, weight: Tensor) -> Tensor:
        first, second = self._halves(part, weight)
        return (first[..., :, None] * second[..., None, :]).flatten(3)
