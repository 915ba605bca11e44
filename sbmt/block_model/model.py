"""The mixed-membership stochastic block model from which an attention mask is drawn.

Read :mod:`sbmt.graph.edges` first. A :class:`BlockModel` determines the probability of every edge without listing all
pairs. Samplers draw an EdgeList from it, and a gate carries gradients from the drawn edges back to the block model.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sbmt.errors import SbmtError, check_choice, describe, is_number
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import TokenPairs, check_causal, check_mask, zero_padding
from sbmt.kernels import operators
from sbmt.types import check_floating, check_untransformed, full_precision, is_traced

Link = Literal["bilinear", "poisson"]
LARGEST_RATE = 1e30  # the largest entry of S under the Poisson link, so that sums over clusters and tokens stay finite
TOLERANCE = 1e-6  # how far outside [0, 1] rounding may push a membership
SMALLEST_PROBABILITY = 0.05
"""Less probable edges are reweighted as if they had this probability, which limits weights to 20 but adds a bias."""
_NUMBERS_AT_ONCE = 1 << 24  # how many numbers are gathered along edges, or how many pairs are summed, at a time


def probability(link: Link, rate: Tensor) -> Tensor:
    """Returns the probability of edges with rate r: min(r, 1), or 1 − e^{−r} under the Poisson link."""
    return rate.clamp(max=1.0) if link == "bilinear" else -torch.expm1(-rate)


@dataclass(frozen=True)
class ExtraKeys:
    """Exploration with δ = per_query / n_keys, at most ½, which adds edges in proportion to n instead of n².

    Attributes:
        per_query: Expected number of extra keys per query, > 0. Padded keys count towards n_keys but are never drawn.
    """

    per_query: int | float

    def __post_init__(self) -> None:
        if not is_number(self.per_query) or not 0 < self.per_query < float("inf"):
            do = "use exploration=0.0 for no exploration"
            raise SbmtError("a positive number of extra keys per query", describe(self.per_query), do)

    def probability(self, n_keys: int | float) -> float:
        """Returns δ for this number of keys."""
        return min(self.per_query / n_keys, 0.5)


def check_exploration(exploration: float) -> None:
    """Raises SbmtError unless 0 ≤ δ < 1."""
    if not is_number(exploration) or not 0 <= exploration < 1:
        do = "use 0.01 as in the paper, or 0 for no exploration"
        raise SbmtError("exploration δ in [0, 1)", describe(exploration), do)


def straight_through_gate(probability: Float[Tensor, " n_edges"]) -> Float[Tensor, " n_edges"]:
    r"""Returns $1 + p - \mathrm{sg}(p)$: exactly 1 in the forward pass, with a derivative of 1 in the backward pass.

    Multiplying the score of a sampled edge by this gate keeps its value and passes the gradient of the loss on to the
    edge's probability: $\partial L/\partial p_{ij} := \partial L/\partial M_{ij}$ for sampled edges, 0 elsewhere.

    Args:
        probability: Edge probabilities *without* exploration and without clamping to 1.

    Paper: equation 9.

    Example:
        >>> p = torch.tensor([0.3, 0.7], requires_grad=True)
        >>> gate = straight_through_gate(p)
        >>> (gate * torch.tensor([2.0, 5.0])).sum().backward()
        >>> gate.tolist(), p.grad.tolist()
        ([1.0, 1.0], [2.0, 5.0])
    """
    check_floating(probability=probability)
    return 1 + (probability - probability.detach())  # the difference comes first: (1 + p) − p may not be 1


def edge_dot(
    query: Float[Tensor, "batch heads n_queries width"], key: Float[Tensor, "batch heads n_keys width"], edges: EdgeList
) -> Float[Tensor, " n_edges"]:
    r"""Computes $\langle x_i, y_j \rangle$ for every edge (i, j), in EdgeList order. Cost: O(edges · width)."""
    if operators.can_run_on(query.device):
        return operators.edge_dot(query, key, edges.row_ptr, edges.keys)
    if edges.cell_count <= edges.n_edges * query.shape[3]:  # all pairs take less memory than one row per edge
        return (query @ key.mT).flatten()[edges.cells()]
    query, key = query.flatten(0, 2), key.flatten(0, 2)
    step = max(1, _NUMBERS_AT_ONCE // query.shape[1])
    pieces = zip(edges.rows().split(step), edges.key_rows().split(step), strict=True)
    return torch.cat([(query[rows] * key[keys]).sum(-1) for rows, keys in pieces])


class BlockModel(TokenPairs):
    r"""The edge probabilities between queries and keys, represented by ``n·k + k²`` numbers per head.

    With memberships $\hat Q_i, \hat K_j \in [0, 1]^k$ and block matrix $S \in \mathbb{R}_{\ge 0}^{k \times k}$, the
    rate of a pair is $r_{ij} = \hat Q_i S \hat K_j^\top$, and its edge probability is

    - $p_{ij} = \min(r_{ij}, 1)$ under ``link="bilinear"``, as in the paper;
    - $p_{ij} = 1 - e^{-r_{ij}}$ under ``link="poisson"``, where entries of $S$ are rates and may exceed 1 (ours).

    Pairs with a padded query or key have probability 0. With exploration $\delta$, the probabilities of real pairs are
    $\min(p_{ij} + \delta, 1)$ and $1 - e^{-(r_{ij} + \delta)}$.

    Args:
        query_membership: ``(batch, heads, n_queries, k)`` in [0, 1].
        block_matrix: ``(heads, k, k)``; entries in [0, 1] under the bilinear link, in [0, 1e30] under the Poisson link.
        key_membership: ``(batch, heads, n_keys, k)`` in [0, 1].
        query_mask: bool ``(batch, n_queries)``, True = real token; None = all real.
        key_mask: bool ``(batch, n_keys)``, True = real token; None = all real.
        link: The function that maps rates to probabilities, ``"bilinear"`` or ``"poisson"``.
        causal: If True, no query may attend to a later key. Since edges are independent, this does not affect the
            probabilities of other pairs. If there are fewer queries than keys, the queries are the last tokens: query i
            is at position i + n_keys - n_queries.

    Leading dimensions of size 1 broadcast. The attributes of these names are float32 (float64 for float64 inputs) and
    0 at padded tokens. Entries outside [0, 1] by at most 1e-6 are treated as rounding errors and clamped.

    Raises:
        SbmtError: If shapes are wrong or do not match, inputs are not floating-point, entries are NaN or out of range,
            masks are not bool, the link is unknown, or a causal model has more queries than keys.

    Paper: equations 5 to 8. The Poisson link, masks and causality are ours.
    """

    def __init__(
        self,
        query_membership: Tensor,
        block_matrix: Tensor,
        key_membership: Tensor,
        query_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        link: Link = "bilinear",
        causal: bool = False,
    ) -> None:
        check_choice("link", link, Link)
        check_floating(query_membership=query_membership, block_matrix=block_matrix, key_membership=key_membership)
        tensors = query_membership, block_matrix, key_membership
        if len({t.device for t in tensors}) > 1:
            devices = ", ".join(str(t.device) for t in tensors)
            raise SbmtError("memberships and block matrix on the same device", devices, "move them with .to(…)")
        check_untransformed(*tensors)
        dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32
        query, block, key = (t.to(dtype) for t in tensors)
        batch, heads = _check_shapes(query, block, key, query_mask, key_mask)
        self.shape = batch, heads, query.shape[2], key.shape[2]
        self.link: Link = link
        self.causal, self.device = causal, query.device
        check_causal(self.shape, causal)
        self.query_mask = check_mask("query_mask", query_mask, batch, query.shape[2], query.device)
        self.key_mask = check_mask("key_mask", key_mask, batch, key.shape[2], query.device)
        query = zero_padding(query.expand(batch, heads, -1, -1), self.query_mask)
        key = zero_padding(key.expand(batch, heads, -1, -1), self.key_mask)
        self.query_membership: Tensor = in_range("query_membership", query, 1.0)
        self.key_membership: Tensor = in_range("key_membership", key, 1.0)
        block = in_range("block_matrix", block, 1.0 if link == "bilinear" else LARGEST_RATE)
        self.block_matrix: Tensor = block.expand(heads, -1, -1)

    @property
    def n_clusters(self) -> int:
        """The number of clusters k."""
        return self.block_matrix.shape[-1]

    @property
    def query_rates(self) -> Float[Tensor, "batch heads n_queries k"]:
        r"""$T = \hat Q S$, so that $T \hat K^\top$ are the rates of all pairs; cached while gradients are disabled."""
        return self._multiply() if torch.is_grad_enabled() else self._known_rates

    @cached_property
    def _known_rates(self) -> Tensor:
        return self._multiply()

    def _multiply(self) -> Tensor:
        query, block = self.query_membership, self.block_matrix
        with full_precision(query):
            return query @ block

    def sum_of_rates(self) -> Float[Tensor, "batch heads"]:
        r"""Computes $\sum_{ij} r_{ij} = (\sum_i \hat Q_i)\, S\, (\sum_j \hat K_j)^\top$, without exploration.

        For a causal model, $\sum_i \hat Q_i\, S\, \sum_{j \le i} \hat K_j^\top$ by prefix sums. Cost: O(n k + k²).
        """
        query, key = self.query_membership, self.key_membership
        with full_precision(query):
            if self.causal:
                return (self.query_rates * key.cumsum(2)[:, :, self.offset :]).sum((2, 3))
            return (query.sum(2, keepdim=True) @ self.block_matrix @ key.sum(2)[..., None]).flatten(1)

    def edge_rate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """Returns the rates of the given edges, without exploration, in EdgeList order. Cost: O(n k² + edges · k)."""
        self.check_edges(edges)
        return edge_dot(self.query_rates, self.key_membership, edges)

    def rate_factors(
        self, exploration: float = 0.0
    ) -> tuple[Float[Tensor, "batch heads n_queries j"], Float[Tensor, "batch heads n_keys j"]]:
        r"""Returns two factors whose product $T K^\top$ contains the rates of all pairs, exploration included.

        They are $T = [\hat Q S \mid \delta]$ and $K = [\hat K \mid 1]$. Cost: O(n k²) time and O(n k) memory.
        """
        check_exploration(exploration)
        query, key = self.query_rates, self.key_membership
        if exploration > 0:  # an additional cluster that contains all real tokens
            query = torch.cat([query, zero_padding(torch.full_like(query[..., :1], exploration), self.query_mask)], -1)
            key = torch.cat([key, zero_padding(torch.ones_like(key[..., :1]), self.key_mask)], -1)
        return query, key

    def expected_mask(self, exploration: float = 0.0) -> Float[Tensor, "batch heads n_queries n_keys"]:
        """Returns E[M], the edge probability of each pair, for exploration δ in [0, 1). O(n² k) time, O(n²) memory."""
        query, key = self.rate_factors(exploration)
        with full_precision(query):
            found = probability(self.link, query @ key.mT)
            return found.tril(self.offset) if self.causal else found

    def edge_probability(self, edges: EdgeList, exploration: float = 0.0) -> Float[Tensor, " n_edges"]:
        """Returns the edge probabilities, in EdgeList order, for exploration δ in [0, 1). O(n k² + edges · k)."""
        check_exploration(exploration)
        rate = self.edge_rate(edges)
        return probability(self.link, rate + exploration if exploration else rate)

    def check_edges(self, edges: EdgeList) -> None:
        """Raises SbmtError unless the edges have the shape of this model and, if it is causal, are causal as well."""
        if not isinstance(edges, EdgeList) or edges.shape != self.shape or edges.causal < self.causal:
            got = edges if isinstance(edges, EdgeList) else type(edges).__name__
            expected = f"{'causal ' * self.causal}edges of shape {self.shape}"
            raise SbmtError(expected, got, "sample them from this block model")

    def gate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """Returns the :func:`straight_through_gate` of the given edges.

        p is not clamped here: a clamp has gradient zero, so edges of probability 1 could never become less likely.
        """
        rate = self.edge_rate(edges)
        return straight_through_gate(rate if self.link == "bilinear" else probability(self.link, rate))

    def expected_density(self, exploration: float = 0.0) -> Float[Tensor, "batch heads"]:
        r"""Returns the mean edge probability over real pairs with exploration δ in [0, 1), or 0 without real pairs.

        Under the bilinear link, as long as no rate can exceed 1 (as with the paper's softmax block matrix), it is
        $\min(\delta + \sum_i \hat Q_i\, S \sum_j \hat K_j^\top / N, 1)$ for $N$ real pairs, in O(n k + k²). Otherwise
        it is computed as the mean of :meth:`expected_mask`, in O(n² k) time but without an array of n² numbers.
        """
        check_exploration(exploration)
        n_pairs = self.n_pairs[:, None]
        added = exploration if self.link == "bilinear" else 0.0  # added to the mean instead of to each rate
        total = self.sum_of_rates() if self.has_closed_density else self._total_probability(exploration - added)
        mean = total / n_pairs.clamp(min=1) + added * (n_pairs > 0).to(total.dtype)
        return mean - (mean - 1).clamp(min=0).detach()  # at most 1, but unlike a clamp this keeps the gradient

    def _total_probability(self, exploration: float) -> Float[Tensor, "batch heads"]:
        """Sums :meth:`expected_mask` over one block of queries at a time, in the backward pass too."""
        query, key = self.rate_factors(exploration)
        step = max(1, _NUMBERS_AT_ONCE // (key[..., 0].numel()))

        def total(query: Tensor, first: int) -> Tensor:
            found = probability(self.link, query @ key.mT)
            return (found.tril(self.offset + first) if self.causal else found).sum((2, 3))

        with full_precision(query):
            if step >= query.shape[2]:
                return total(query, 0)
            parts = enumerate(query.split(step, 2))
            return torch.stack([checkpoint(total, x, i * step, use_reentrant=False) for i, x in parts]).sum(0)

    @cached_property
    def has_closed_density(self) -> bool:
        """Whether :meth:`expected_density` has a closed form because the link is bilinear and no rate exceeds 1."""
        if self.link != "bilinear":
            return False
        with torch.no_grad():
            if bool((self.block_matrix.sum((1, 2)) <= 1 + TOLERANCE).all()):  # memberships are at most 1
                return True
            most = self.key_membership.amax(2, keepdim=True)  # batch heads 1 k
            bound = (self.query_membership * (most @ self.block_matrix.mT)).sum(-1)
            return bool((bound <= 1 + TOLERANCE).all())  # rounding must not make the cost quadratic

    def __repr__(self) -> str:
        causal = ", causal=True" * self.causal
        return f"BlockModel(shape={self.shape}, n_clusters={self.n_clusters}, link={self.link!r}{causal})"


def smallest_probability(reweight: bool | float) -> float:
    """Returns the lower bound of p in the weight 1/p, which is the number given, or 1 without reweighting."""
    return SMALLEST_PROBABILITY if reweight is True else float(reweight) or 1.0


def reweighting_bias(drawn_with: Float[Tensor, " n_edges"], reweight: bool | float = True) -> Tensor:
    r"""Returns $-\ln p_{ij}$ for drawn edges, to be added to their scores (Horvitz and Thompson, 1952).

    Here p is the probability with which an edge was drawn, exploration included; it is 1 for certain edges. As long as
    p is at least :func:`smallest_probability`, numerator and denominator of the softmax over drawn edges are unbiased
    estimates of those over all pairs. The bias has no gradient. Not in the paper.
    """
    return drawn_with.detach().clamp(min=smallest_probability(reweight)).log_().neg_()


def _check_shapes(
    query: Tensor, block: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None
) -> tuple[int, int]:
    """Returns the batch size and number of heads to which all tensors broadcast, or raises SbmtError."""
    masks = [mask for mask in (query_mask, key_mask) if isinstance(mask, Tensor)]
    heads = {x.shape[axis] for x, axis in ((query, 1), (block, 0), (key, 1)) if x.dim() > 1} - {1}
    batches = {x.shape[0] for x in (query, key, *masks) if x.dim()} - {1}
    if query.dim() != 4 or key.dim() != 4 or block.dim() != 3:
        expected = "memberships with 4 dimensions and a block matrix with 3"
    elif not query.shape[3] == key.shape[3] == block.shape[1] == block.shape[2]:
        expected = "the same number of clusters k in (…, n, k), (heads, k, k) and (…, m, k)"
    elif 0 in (*query.shape, *key.shape, *block.shape):
        expected = "at least one example, head, query, key and cluster"
    elif len(heads) > 1 or len(batches) > 1:
        expected = "equal (or broadcastable) batch sizes and head counts"
    else:
        return batches.pop() if batches else 1, heads.pop() if heads else 1
    shapes = ", ".join(str(tuple(x.shape)) for x in (query, block, key, *masks))
    raise SbmtError(expected, shapes, "see BlockModel's docstring for the shapes; leading dimensions of 1 broadcast")


def in_range(name: str, value: Tensor, upper: float) -> Tensor:
    """Clamps a tensor to [0, upper]; raises SbmtError for entries too far outside to be rounding errors."""
    if is_traced(value):
        return value.clamp(0.0, upper)
    low, high = (x.item() for x in torch.aminmax(value.detach()))
    if not (low >= -TOLERANCE and high <= upper * (1 + TOLERANCE)):  # NaN fails both
        got = f"values from {low:g} to {high:g}"
        raise SbmtError(f"{name} in [0, {upper:g}] without NaN", got, "check how it was computed")
    return value.clamp(0.0, upper) if low < 0 or high > upper else value
