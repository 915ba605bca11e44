"""The mixed-membership stochastic block model that an attention mask is drawn from.

Read :mod:`sbmt.graph.edges` first. A :class:`BlockModel` knows the probability of every edge without listing them all:
samplers draw an EdgeList from it, and its gate carries gradients from the drawn edges back to it.
"""

from functools import cached_property
from typing import Any

import torch
import torch.utils.checkpoint
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.block_model.exploration import check_exploration
from sbmt.block_model.gate import straight_through_gate
from sbmt.block_model.link import Link, find_link
from sbmt.block_model.pair_products import edge_dot, edge_gate
from sbmt.errors import SbmtError, check_untransformed
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import check_mask, count_pairs, zero_padding
from sbmt.precision import full_precision

TOLERANCE = 1e-6  # how far outside [0, 1] rounding may carry a membership
_PAIRS_AT_ONCE = 1 << 24  # pairs whose probabilities are formed at a time where no closed form exists


class BlockModel:
    r"""Edge probabilities between queries and keys, in ``n·k + k²`` numbers per head.

    With memberships $\hat Q_i, \hat K_j \in [0, 1]^k$ and block matrix $S \in \mathbb{R}_{\ge 0}^{k \times k}$, the
    rate of a pair is $r_{ij} = \hat Q_i S \hat K_j^\top$, and its edge probability

    - ``link="bilinear"``: $p_{ij} = \min(r_{ij}, 1)$, the paper's;
    - ``link="poisson"``: $p_{ij} = 1 - e^{-r_{ij}}$, where $S$ holds rates, which may exceed 1 (ours).

    Pairs with a padded query or key have probability 0. Exploration $\delta$ makes these $\min(p_{ij} + \delta, 1)$
    and $1 - e^{-(r_{ij} + \delta)}$ on real pairs.

    Args:
        query_membership: ``(batch, heads, n_queries, k)`` in [0, 1].
        block_matrix: ``(heads, k, k)``; entries in [0, 1] under the bilinear link, in [0, 1e30] under the Poisson link.
            ``(heads, g, k/g, k/g)`` gives the blocks on its diagonal, one for each of g groups that never meet.
        key_membership: ``(batch, heads, n_keys, k)`` in [0, 1].
        query_mask: bool ``(batch, n_queries)``, True = real token; None = all real.
        key_mask: bool ``(batch, n_keys)``, True = real token; None = all real.
        link: How a rate becomes a probability: a name, or a :class:`~sbmt.block_model.link.Link` of yours.

    Leading dimensions of size 1 broadcast. 16-bit input becomes float32; float64 stays float64. Entries that exceed
    [0, 1] by at most 1e-6 are taken for rounding and clamped; memberships of padded tokens are never looked at.

    Raises:
        SbmtError: On wrong or differing shapes, non-float input, NaN or out-of-range entries, non-bool masks, or an
            unknown link.

    Paper: equations 5 to 8; ``link="poisson"`` and masks are not in it.
    """

    def __init__(
        self,
        query_membership: Tensor,
        block_matrix: Tensor,
        key_membership: Tensor,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        link: str | Link = "bilinear",
    ) -> None:
        self.link = find_link(link)
        query, block, key = _as_float(query_membership, block_matrix, key_membership)
        batch, heads = _check_shapes(query, block, key, query_mask, key_mask)
        self.query_mask = check_mask("query_mask", query_mask, batch, query.shape[2], query.device)
        self.key_mask = check_mask("key_mask", key_mask, batch, key.shape[2], query.device)
        query = zero_padding(query.expand(batch, heads, -1, -1), self.query_mask)
        key = zero_padding(key.expand(batch, heads, -1, -1), self.key_mask)
        self._query: Tensor = in_range("query_membership", query, 1.0)
        self._key: Tensor = in_range("key_membership", key, 1.0)
        block = in_range("block_matrix", block, self.link.largest_entry)
        self.blocks: Tensor = (block if block.dim() == 4 else block[:, None]).expand(heads, -1, -1, -1)
        self._rates: Tensor | None = None

    @property
    def query_membership(self) -> Float[Tensor, "batch heads n_queries k"]:
        r"""$\hat Q$, in at least float32, and 0 for padded tokens."""
        return self._query

    @property
    def key_membership(self) -> Float[Tensor, "batch heads n_keys k"]:
        r"""$\hat K$, likewise."""
        return self._key

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(batch, heads, n_queries, n_keys)``."""
        batch, heads, n_queries, _ = self._query.shape
        return batch, heads, n_queries, self._key.shape[2]

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self._query.device

    @property
    def n_clusters(self) -> int:
        """The number of clusters k."""
        return self.blocks.shape[1] * self.blocks.shape[-1]

    @property
    def block_matrix(self) -> Float[Tensor, "heads k k"]:
        """S with all its entries, including the zeros between groups."""
        if self.blocks.shape[1] == 1:
            return self.blocks[:, 0]
        return torch.stack([torch.block_diag(*blocks) for blocks in self.blocks])

    @property
    def n_pairs(self) -> Int[Tensor, " batch"]:
        """Real query-key pairs of each example, int64."""
        return count_pairs(self.shape, self.query_mask, self.key_mask, self.device)

    @property
    def query_rates(self) -> Float[Tensor, "batch heads n_queries k"]:
        r"""$T = \hat Q S$, whose product with $\hat K^\top$ is the rate of every pair.

        It is computed once, and shared by the sampler, the gate and whatever else needs it.
        """
        if self._rates is None:
            with torch.no_grad(), full_precision(self._query):
                self._rates = blockwise(self.query_membership, self.blocks)
        rates: Tensor = _Product.apply(self.query_membership, self.blocks, self._rates)
        return rates

    def sum_of_rates(self) -> Float[Tensor, "batch heads"]:
        r"""$\sum_{ij} r_{ij} = (\sum_i \hat Q_i)\, S\, (\sum_j \hat K_j)^\top$ without exploration, in O(n k + k²)."""
        with full_precision(self._query):
            query, key = self.query_membership.sum(2, keepdim=True), self.key_membership.sum(2)
            return (blockwise(query, self.blocks) @ key[..., None]).flatten(1)

    def edge_rate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """The rates of given edges without exploration, in EdgeList order.

        Cost: O(n k² + edges · k).

        Raises:
            SbmtError: If the shapes differ.
        """
        self.check_edges(edges)
        return edge_dot(self.query_rates, self.key_membership, edges)

    def rate_factors(
        self, exploration: float = 0.0
    ) -> tuple[Float[Tensor, "batch heads n_queries j"], Float[Tensor, "batch heads n_keys j"]]:
        r"""Two factors whose product $T K^\top$ is the rate of every pair, exploration included.

        $T = [\hat Q S \mid \delta]$ and $K = [\hat K \mid 1]$. Cost: O(n k²) time, and no memory of size n².
        """
        check_exploration(exploration)
        return self.with_exploration(self.query_rates, self.key_membership, exploration)

    def with_exploration(self, query: Tensor, key: Tensor, exploration: float) -> tuple[Tensor, Tensor]:
        """Factors of the rates with δ added to each pair of real tokens: one more cluster that all of these belong to.

        Args:
            query: The factor T without exploration.
            key: The factor K without exploration.
            exploration: δ in [0, 1).
        """
        if exploration > 0:
            query = torch.cat([query, zero_padding(torch.full_like(query[..., :1], exploration), self.query_mask)], -1)
            key = torch.cat([key, zero_padding(torch.ones_like(key[..., :1]), self.key_mask)], -1)
        return query, key

    def expected_mask(self, exploration: float = 0.0) -> Float[Tensor, "batch heads n_queries n_keys"]:
        """E[M], the edge probability of every pair: ``(batch, heads, n_queries, n_keys)`` in [0, 1].

        Args:
            exploration: δ in [0, 1).

        Cost: O(n² k) time, O(n²) memory.
        """
        query, key = self.rate_factors(exploration)
        with full_precision(query):
            return self.link.probability(query @ key.mT)

    def edge_probability(
        self, edges: EdgeList, exploration: float = 0.0, *, clamp: bool = True
    ) -> Float[Tensor, " n_edges"]:
        """The probabilities of given edges, without forming all pairs where that is cheaper.

        Args:
            edges: Edges of a graph of this model's shape.
            exploration: δ in [0, 1).
            clamp: False leaves ``min(·, 1)`` out, as the gate needs it: the clamp's gradient is zero, so that no edge
                of probability 1 could ever become less likely.

        Returns:
            ``(n_edges,)`` in EdgeList order.

        Cost: O(n k² + edges · k) time; memory for the smaller of all pairs and ``edges · k``, in chunks.

        Raises:
            SbmtError: If the shapes differ.
        """
        self.check_edges(edges)
        query, key = self.rate_factors(exploration)
        rate = edge_dot(query, key, edges)
        return self.link.probability(rate) if clamp else self.link.unclamped(rate)

    @torch.no_grad()
    def cluster_order(self) -> tuple[Int[Tensor, "batch heads n_queries"], Int[Tensor, "batch heads n_keys"]]:
        r"""Orders of queries and of keys in which edges lie close together, for :meth:`sbmt.EdgeList.to_block_mask`.

        Keys are sorted by the cluster that they belong to most, and queries by the cluster $b$ that they attend most,
        that of the largest $(\hat Q S)_b$; of several groups of clusters the first counts. Padding comes last.

        Returns:
            The token at each place, int64.

        Cost: that of :attr:`query_rates`, and a sort.
        """
        clusters = self._first_clusters()
        masks = self.query_mask, self.key_mask
        query, key = (
            c if mask is None else c.masked_fill(~mask[:, None], self.n_clusters)
            for c, mask in zip(clusters, masks, strict=True)
        )
        return query.argsort(dim=-1, stable=True), key.argsort(dim=-1, stable=True)

    def _first_clusters(self) -> tuple[Tensor, Tensor]:
        """The cluster of the first group that each query attends most, and that each key belongs to most."""
        size = self.blocks.shape[-1]
        return self.query_rates[..., :size].argmax(-1), self.key_membership[..., :size].argmax(-1)

    def check_edges(self, edges: EdgeList) -> None:
        """Raises SbmtError unless these are edges of this model's shape."""
        if not isinstance(edges, EdgeList) or edges.shape != self.shape:
            got = edges.shape if isinstance(edges, EdgeList) else type(edges).__name__
            raise SbmtError(f"edges of shape {self.shape}", got, "sample them from this block model")

    def gate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """Ones with the gradient of p: ``straight_through_gate(self.edge_probability(edges, clamp=False))``.

        Under the bilinear link the gradient does not depend on p, so p is never computed.

        Paper: equation 9.
        """
        self.check_edges(edges)
        if self.link.is_linear:
            return edge_gate(self.query_rates, self.key_membership, edges)
        return straight_through_gate(self.link.unclamped(self.edge_rate(edges)))

    def expected_density(self, exploration: float = 0.0) -> Float[Tensor, "batch heads"]:
        r"""Mean edge probability over real pairs, ``(batch, heads)``; 0 where there is no real pair.

        Under the bilinear link, while no rate can exceed 1 (always so for the paper's softmax block matrix), this is
        $\min(\delta + \sum_i \hat Q_i\, S \sum_j \hat K_j^\top / N, 1)$ for $N$ real pairs, in O(n k + k²). For
        other links, and for block matrices whose rates are clamped, there is no closed form: all pairs are visited, in
        O(n² k) time and in pieces of bounded memory.

        Args:
            exploration: δ in [0, 1).
        """
        check_exploration(exploration)
        n_pairs = self.n_pairs[:, None]
        total = self.sum_of_rates() if self.has_closed_density else self._sum_of_probabilities(0.0)
        mean = total / n_pairs.clamp(min=1)
        mean = mean - (mean - 1).clamp(min=0).detach()  # what rounding adds to 1; a clamp would also drop the gradient
        if exploration == 0:
            return mean
        explored = self.link.explored_mean(mean, exploration, (n_pairs > 0).to(mean.dtype))
        return self._sum_of_probabilities(exploration) / n_pairs.clamp(min=1) if explored is None else explored

    @cached_property
    def has_closed_density(self) -> bool:
        """Whether :meth:`expected_density` has a closed form, in time and memory linear in n."""
        return self.link.is_linear and self._rates_stay_below_one()

    def _rates_stay_below_one(self) -> bool:
        with torch.no_grad():
            if bool((self.blocks.sum((1, 2, 3)) <= 1 + TOLERANCE).all()):  # memberships are at most 1
                return True
            most = self.key_membership.amax(2, keepdim=True)  # batch heads 1 k
            bound = (self.query_membership * (most @ self.block_matrix.mT)).sum(-1)
            return bool((bound <= 1 + TOLERANCE).all())  # rounding alone must not make it quadratic

    def _sum_of_probabilities(self, exploration: float) -> Tensor:
        query, key = self.rate_factors(exploration)
        rows = max(1, _PAIRS_AT_ONCE // (key.shape[0] * key.shape[1] * key.shape[2]))

        def piece(part: Tensor, key: Tensor) -> Tensor:
            with full_precision(part):
                return self.link.probability(part @ key.mT).sum((-2, -1))

        # Checkpointing computes each piece again in the backward pass, so that no n² array outlives its piece.
        parts = [
            torch.utils.checkpoint.checkpoint(piece, part, key, use_reentrant=False) for part in query.split(rows, 2)
        ]
        return torch.stack(parts).sum(0)

    def __repr__(self) -> str:
        return f"BlockModel(shape={self.shape}, n_clusters={self.n_clusters}, link={self.link.name!r})"


def check_block_model(block_model: object, query: Tensor | None = None, key: Tensor | None = None) -> None:
    """Raises SbmtError unless it is a block model, and one for these queries and keys if they are given.

    A block model of one head serves any number of them.
    """
    if not isinstance(block_model, BlockModel):
        raise SbmtError("a BlockModel", type(block_model).__name__, "build one from memberships and a block matrix")
    if query is None or key is None:
        return
    expected, device = (*query.shape[:3], key.shape[2]), block_model.device
    if block_model.shape not in (expected, (expected[0], 1, *expected[2:])):
        raise SbmtError(f"a block model of shape {expected}", block_model.shape, "infer it from these tokens")
    if device != query.device:
        raise SbmtError(f"a block model on {query.device}, as the query", device, "build it there")


def _as_float(*tensors: Tensor) -> list[Tensor]:
    """The tensors in one type: float64 if any of them has it, else float32."""
    for name, tensor in zip(("query_membership", "block_matrix", "key_membership"), tensors, strict=True):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = str(tensor.dtype) if isinstance(tensor, Tensor) else type(tensor).__name__
            raise SbmtError(f"{name} as a floating-point tensor", kind, "convert it with torch.as_tensor(…).float()")
    if len({t.device for t in tensors}) > 1:
        raise SbmtError("memberships and block matrix on one device", [str(t.device) for t in tensors], "move them")
    check_untransformed(*tensors)
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
    return [t.to(dtype) for t in tensors]


def _check_shapes(
    query: Tensor, block: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None
) -> tuple[int, int]:
    """The numbers of examples and heads that all tensors broadcast to."""
    do = "see BlockModel's Args for the shapes; leading dimensions of size 1 broadcast"
    shapes = f"query_membership {tuple(query.shape)}, block_matrix {tuple(block.shape)}, "
    shapes += f"key_membership {tuple(key.shape)}"
    masks = {
        name: m for name, m in (("query_mask", query_mask), ("key_mask", key_mask)) if isinstance(m, Tensor) and m.dim()
    }
    shapes += "".join(f", {name} {tuple(m.shape)}" for name, m in masks.items())
    if query.dim() != 4 or key.dim() != 4 or block.dim() not in (3, 4):
        raise SbmtError("memberships with 4 dimensions and a block matrix with 3, or 4 for groups", shapes, do)
    n_groups = block.shape[1] if block.dim() == 4 else 1
    if not (query.shape[3] == key.shape[3] == n_groups * block.shape[-1] and block.shape[-1] == block.shape[-2]):
        raise SbmtError("one number of clusters k in (…, n, k), (heads, k, k) and (…, m, k)", shapes, do)
    if 0 in (*query.shape, *key.shape, *block.shape):
        raise SbmtError("at least one example, head, query, key and cluster", shapes, do)
    heads = {query.shape[1], block.shape[0], key.shape[1]} - {1}
    batches = {t.shape[0] for t in (query, key, *masks.values())} - {1}
    if len(heads) > 1 or len(batches) > 1:
        raise SbmtError("equal (or broadcasting) batch sizes and head counts", shapes, do)
    return batches.pop() if batches else 1, heads.pop() if heads else 1


def in_range(name: str, value: Tensor, upper: float) -> Tensor:
    """The tensor with its entries clamped to [0, upper], which may exceed that range by rounding only."""
    low, high = (x.item() for x in torch.aminmax(value.detach()))
    if not (low >= -TOLERANCE and high <= upper * (1 + TOLERANCE)):  # NaN fails both
        got = f"values from {low:g} to {high:g}"
        raise SbmtError(f"{name} in [0, {upper:g}] without NaN", got, "check what made it")
    return value.clamp(0.0, upper) if low < 0 or high > upper else value


def blockwise(membership: Tensor, blocks: Tensor) -> Tensor:
    """The product with the block matrix, group by group: ``(…, heads, n, k)`` and ``(heads, g, k/g, k/g)``."""
    parts = membership.chunk(blocks.shape[1], -1)
    return torch.cat([part @ block for part, block in zip(parts, blocks.unbind(1), strict=True)], -1)


class _Product(torch.autograd.Function):
    """Gives a known product the gradients of its factors, so that each use of it gets a graph of its own."""

    @staticmethod
    def forward(ctx: Any, membership: Tensor, blocks: Tensor, product: Tensor) -> Tensor:
        ctx.save_for_backward(membership, blocks)
        return product.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        membership, blocks = ctx.saved_tensors
        n_groups = blocks.shape[1]
        pairs = zip(membership.chunk(n_groups, -1), grads[0].chunk(n_groups, -1), strict=True)
        with full_precision(membership):
            to_blocks = torch.stack([(part.mT @ grad).sum(0) for part, grad in pairs], 1)
            return blockwise(grads[0], blocks.mT), to_blocks, None
