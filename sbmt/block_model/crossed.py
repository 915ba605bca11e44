"""Block models whose clusters are crossed partitions, which do without an array of all tokens by all clusters."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from sbmt.block_model.link import Link
from sbmt.block_model.model import BlockModel, blockwise, in_range
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import zero_padding
from sbmt.kernels import crossed as kernels
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.structures import CrossedFactors
from sbmt.kernels.token_sums import sum_of_products
from sbmt.precision import full_precision

MOST_PARTS = 1 << 15  # numbered by int16
Chosen = tuple[Tensor, Tensor]
"""Numbers of parts that tokens belong to, int16, and how much: both ``(batch, heads, n, chosen)``."""


def part_memberships(
    query: Float[Tensor, "batch heads n_queries width"],
    key: Float[Tensor, "batch heads n_keys width"],
    node_map: nn.Linear,
    centres: Float[Tensor, "heads parts d"],
    n_partitions: int,
    n_active: int,
) -> tuple[Chosen, Chosen]:
    r"""The parts of largest logit $\langle \text{node}_i, C_a \rangle$ of each partition, and their softmax.

    The plain twin sets all other logits of the partition to −∞ and takes the softmax of all.

    Args:
        query: What the block model reads.
        key: Likewise.
        node_map: Makes a node of each token.
        centres: C, one for each part of each partition, partition after partition.
        n_partitions: Into how many partitions the parts fall, equally many into each.
        n_active: How many parts of each partition a token belongs to.

    Returns:
        Of queries and of keys, numbers of parts, in ascending order, and memberships, which sum to 1 over each
        partition. A token has ``n_partitions · n_active`` of both.

    Cost: O(n · min(width, d)) for each part, for logits of which no gradient is taken; the rest follows the parts that
    are chosen.
    """
    query, key, weight, bias = (t.to(centres.dtype) for t in (query, key, node_map.weight, node_map.bias))
    if skips_nodes(weight.shape[0], weight.shape[1], centres.shape[1]):
        affine = torch.cat([weight, bias[:, None]], 1).mT
        matrix = torch.bmm(affine.expand(centres.shape[0], -1, -1), centres.mT)
    else:
        query, key = (linear(x, weight, bias) for x in (query, key))
        matrix = pad(centres.mT, (0, 0, 0, 1))
    if can_run_on(query.device):
        given = query, key, matrix, n_partitions, n_active
        of_query, query_part, of_key, key_part = kernels.part_memberships(*given)
        return (query_part, of_query), (key_part, of_key)
    queries, keys = (_largest(x @ matrix[:, :-1] + matrix[:, -1:], n_partitions, n_active) for x in (query, key))
    return queries, keys


def skips_nodes(d: int, width: int, n_parts: int) -> bool:
    """Whether it takes fewer products to map tokens of this width to their logits at once, without nodes of width d."""
    return width * n_parts <= d * (width + n_parts)


def _largest(logits: Tensor, n_partitions: int, n_active: int) -> Chosen:
    if has_gpu_kernels(logits.device):
        part = kernels.largest_parts(logits.detach(), n_partitions, n_active)
    else:
        by_partition = logits.detach().unflatten(-1, (n_partitions, -1))
        first = torch.arange(0, logits.shape[-1], by_partition.shape[-1], device=logits.device)[:, None]
        part = (by_partition.topk(n_active, -1).indices.sort(-1).values + first).flatten(-2).to(torch.int16)
    return part, logits.gather(-1, part.long()).unflatten(-1, (n_partitions, -1)).softmax(-1).flatten(-2)


class CrossedModel(BlockModel):
    r"""A :class:`~sbmt.block_model.model.BlockModel` each of whose groups crosses two partitions of the tokens.

    With memberships $\hat Q^f, \hat K^f$ in the s parts of partition f, and blocks $S^f$ of size s × s,

    $$r_{ij} = \sum_{g} \big(\hat Q^{2g}_i S^{2g} \hat K^{2g\top}_j\big) \big(\hat Q^{2g+1}_i S^{2g+1}
    \hat K^{2g+1\top}_j\big).$$

    This is a block model with s² clusters a group, the pairs of parts: a token's membership in a pair is the product of
    those in its parts, and the group's block of S is the Kronecker product of the two $S^f$. It has that model's law,
    and its dense memberships where somebody asks for them. :meth:`edge_rate` and :meth:`sum_of_rates` never do so, nor
    does sampling under the Poisson link on the CPU.

    Args:
        query: Parts, int16, and memberships of queries, as :func:`part_memberships` returns them.
        part_blocks: $S^f$, ``(heads, partitions, s, s)``.
        key: The same of keys.
        query_mask: bool ``(batch, n_queries)``; None = all real.
        key_mask: bool ``(batch, n_keys)``; None = all real.
        link: How a rate becomes a probability.
    """

    def __init__(
        self,
        query: tuple[Tensor, Tensor],
        part_blocks: Tensor,
        key: tuple[Tensor, Tensor],
        query_mask: Tensor | None,
        key_mask: Tensor | None,
        link: Link,
    ) -> None:
        self.link, self.query_mask, self.key_mask = link, query_mask, key_mask
        self.query_part, self.key_part = query[0], key[0]
        self._query = in_range("query_membership", zero_padding(query[1], query_mask), 1.0)
        self._key = in_range("key_membership", zero_padding(key[1], key_mask), 1.0)
        self.part_blocks = in_range("block_matrix", part_blocks, link.largest_entry**0.5)
        self._rates = None

    @property
    def n_clusters(self) -> int:
        """The number of pairs of parts, k."""
        return self.part_blocks.shape[1] // 2 * self.part_blocks.shape[2] ** 2

    @property
    def blocks(self) -> Float[Tensor, "heads g pairs pairs"]:  # type: ignore[override]
        """The blocks of S, each the Kronecker product of two; computed anew each time."""
        first, second = self.part_blocks[:, 0::2], self.part_blocks[:, 1::2]
        crossed = first[:, :, :, None, :, None] * second[:, :, None, :, None, :]
        return crossed.flatten(4, 5).flatten(2, 3)

    @property
    def query_membership(self) -> Float[Tensor, "batch heads n_queries k"]:
        """Memberships in all pairs of parts, most of them 0; computed anew each time."""
        return self._crossed(self._in_parts(self.query_part, self._query))

    @property
    def key_membership(self) -> Float[Tensor, "batch heads n_keys k"]:
        """Likewise."""
        return self._crossed(self._in_parts(self.key_part, self._key))

    def part_rates(self) -> Float[Tensor, "batch heads n_queries parts"]:
        r"""$\hat Q^f S^f$ for each partition f: the product of two is a query's rates to a group's clusters."""
        if has_gpu_kernels(self.device):
            part, weight, blocks, *_ = self.factors()
            rates: Tensor = kernels.part_rates(part, weight, blocks, self.shape[2])
            return rates.unflatten(0, self.shape[:3])
        with full_precision(self._query):
            return blockwise(self._in_parts(self.query_part, self._query), self.part_blocks)

    def sum_of_rates(self) -> Float[Tensor, "batch heads"]:
        r"""As for any block model, from how much queries and keys are in each pair of parts.

        With $N_{ac} = \sum_i \hat Q^{2g}_{ia} \hat Q^{2g+1}_{ic}$, and $M$ likewise of keys, it is $\sum_g \langle
        S^{2g\top} N S^{2g+1}, M \rangle$.

        Cost: O(n g · active² + g s³).
        """
        query, key = self._pair_totals(self.query_part, self._query), self._pair_totals(self.key_part, self._key)
        with full_precision(query):
            reached = self.part_blocks[:, 0::2].mT @ query @ self.part_blocks[:, 1::2]
            return (reached * key).sum((2, 3, 4))

    def edge_rate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """As for any block model, in O(n · parts + edges)."""
        self.check_edges(edges)
        factors = self.factors()
        if can_run_on(self.device):
            rate: Tensor = kernels.crossed_rates(*factors, edges.row_ptr, edges.keys, *edges.shape[2:])
            return rate
        rates, (part, weight) = self.part_rates().flatten(0, 2), factors[3:]
        if has_gpu_kernels(self.device):
            has_gradients = torch.is_grad_enabled() and (rates.requires_grad or weight.requires_grad)
            mask = edges.row_ptr, edges.keys, *(edges.by_key if has_gradients else (edges.keys[:0],) * 3)
            return kernels.rates_by_parts(rates, part, weight, self.part_blocks.shape[1], *mask, *edges.shape[2:])
        keys = edges.key_rows()
        of_parts = rates.flatten()[edges.rows()[:, None] * rates.shape[1] + part[keys]] * weight[keys]  # edges chosen
        first, second = of_parts.unflatten(1, (self.part_blocks.shape[1] // 2, 2, -1)).sum(-1).unbind(-1)
        return (first * second).sum(-1)

    def _first_clusters(self) -> tuple[Tensor, Tensor]:
        size = self.part_blocks.shape[2]
        query, key = (
            t[..., : 2 * size].unflatten(-1, (2, size)).argmax(-1)
            for t in (self.part_rates(), self._in_parts(self.key_part, self._key))
        )  # the largest of products is the product of the largest
        return query[..., 0] * size + query[..., 1], key[..., 0] * size + key[..., 1]

    def factors(self) -> CrossedFactors:
        """What rates are made of, for the tokens of all examples and heads, one after the other."""
        query_part, query, key_part, key = (
            t.flatten(0, 2).contiguous() for t in (self.query_part, self._query, self.key_part, self._key)
        )
        return CrossedFactors(query_part, query, self.part_blocks.contiguous(), key_part, key)

    def _pair_totals(self, part: Tensor, weight: Tensor) -> Float[Tensor, "batch heads g s s"]:
        """How much the tokens of each graph are in every pair of parts."""
        if can_run_on(self.device):
            batch, heads, (_, n_partitions, size, _) = *self.shape[:2], self.part_blocks.shape
            tokens = (t.flatten(0, 2).contiguous() for t in (part, weight))
            totals: Tensor = kernels.pair_totals(*tokens, n_partitions, size, batch * heads)
            return totals.unflatten(0, (batch, heads))
        return sum_of_products(*self._by_group(self._in_parts(part, weight)))

    def _in_parts(self, part: Tensor, weight: Tensor) -> Tensor:
        """Memberships in all parts."""
        n_parts = self.part_blocks.shape[1] * self.part_blocks.shape[2]
        return weight.new_zeros(*weight.shape[:-1], n_parts).scatter_add(-1, part.long(), weight)

    def _by_group(self, in_parts: Tensor) -> tuple[Tensor, ...]:
        """What belongs to the first and to the second partition of each group, ``(batch, heads, n, g, s)``."""
        return in_parts.unflatten(-1, (-1, 2, self.part_blocks.shape[2])).unbind(-2)

    def _crossed(self, in_parts: Tensor) -> Tensor:
        first, second = self._by_group(in_parts)
        return (first[..., :, None] * second[..., None, :]).flatten(3)
