"""Which patterns a block model can draw: the block budget, and explicit models.

The paper's block matrix is a softmax over all k² entries. It sums to 1, so the blocks share one unit of probability.
Under the Poisson link rates are unbounded and there is no such budget: A1 is drawn with p → 1 by a single head, the
least block size is 4 for every k, which relays can join, and Algorithm 1 is exact. That does not repair Lemma 1, O(kn)
instead of O(n) edges, the order of the patterns, relays visited twice, or E[softmax] against softmax on the support.

Numbers out of range and unknown names raise SbmtError.
"""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.block_model.model import BlockModel, Link, probability
from sbmt.errors import SbmtError, check_choice, check_sizes, choose
from sbmt.samplers import SAMPLERS, law_of
from theory.checks import as_number
from theory.conditions import as_csr
from theory.patterns import Relays, block_sizes, blocks, relay_tokens
from theory.random_graphs import lemma1_probability

BLOCK_CAPS: dict[str, Callable[[int], float]] = {
    "bernoulli": lambda k: 1 / k,  # bilinear link, exact samplers
    "fastrg": lambda k: -math.expm1(-1 / k),  # bilinear link, Algorithm 1, whose repeated draws collapse
    "poisson": lambda k: math.nextafter(1.0, 0.0),  # Poisson link, any sampler: every p below 1
}
"""By law, the largest probability of edges within k blocks, from equation 5."""


class Budget(NamedTuple):
    """The probability that a block needs, the most that it can have, and whether that is enough."""

    needed: float
    cap: float
    is_enough: bool


class Attained(NamedTuple):
    """Off-diagonal edge probabilities: the smallest on the pattern, and the largest elsewhere."""

    inside: float
    outside: float


def in_block_bound(groups: int, p_out: float | int) -> float:
    """The largest mean in-block probability of g equal blocks: 1/g + (g − 1)/2 · p_out, whatever the clusters.

    The matrix of probabilities is a convex mixture of rectangles, and a 0/1 rectangle that contains t diagonal blocks
    contains t² − t others; t/g ≤ 1/g + (t² − t)/(2g) for integer t. The bound is tight with all 2-subsets as clusters.
    ``p_out`` is the mean cross-block probability. A bound above 1 says nothing.
    """
    check_sizes(groups=groups)
    p_out = as_number(p_out, "p_out in [0, 1]", "give the mean probability of edges between blocks", 0, 1)
    groups = int(groups)  # dividing by NumPy's small integers gives half precision
    return 1 / groups + (groups - 1) / 2 * p_out


def block_cap(k: int, law: str = "bernoulli") -> float:
    """The largest probability of edges within k blocks without any between blocks; see :data:`BLOCK_CAPS`."""
    check_sizes(k=k)
    return choose("law", law, BLOCK_CAPS)(int(k))


def min_block_size(k: int, law: str = "bernoulli") -> int:
    """The least m for which k blocks of m tokens can have Lemma 1's probability: p_L(m) ≤ :func:`block_cap`.

    Under the budget 1/k this is m ≈ ek + ln(ek), so n = km ≈ ek² + k ln(ek).

    Example:
        >>> min_block_size(4), min_block_size(4, "fastrg"), min_block_size(4, "poisson")
        (14, 15, 4)
    """
    cap = block_cap(k, law)
    most = 2
    while lemma1_probability(most) > cap:
        most *= 2
    return bisect_left(range(most), True, lo=2, key=lambda size: lemma1_probability(size) <= cap)


def fits_in_block_budget(n: int, k: int, law: str = "bernoulli") -> Budget:
    """Whether the smallest of k blocks, of ⌊n/k⌋ tokens, can have Lemma 1's probability.

    Example:
        >>> fits_in_block_budget(16, 4).is_enough  # the paper's own figure
        False
    """
    needed, cap = lemma1_probability(min(block_sizes(n, k))), block_cap(k, law)
    return Budget(needed, cap, needed <= cap)


def block_matrix(clusters: Tensor, link: Link = "bilinear") -> Tensor:
    """The layer's block matrix of clusters C: softmax of C Cᵀ over all entries (equation 5), or our exp(C Cᵀ)/k²."""
    check_choice("link", link, Link)
    gram = clusters @ clusters.T  # not clamped, as a layer's is: the theory's clusters may be as long as they like
    return gram.exp() / gram.numel() if link == "poisson" else gram.flatten().softmax(0).view_as(gram)


def realise(
    pattern: str,
    n: int,
    k: int,
    link: Link = "bilinear",
    *,
    c: float | int = 6.0,
    node: float | int = 200.0,
    rate: float | int = 40.0,
    relays: Relays = "last",
) -> BlockModel:
    """A block model of one head that draws a pattern, except for self-loops, as well as its link allows.

    *Bilinear, A1*: clusters C = c I, memberships one-hot; p → 1/k, the whole budget. *Bilinear, others*: one cluster
    of norm c and k − 1 at the origin, where every membership is σ(0) = ½; chosen tokens have logit ``node · c`` in
    the first cluster and the others its negative; p → 1. *Poisson*: clusters C = c I and memberships α or 0 in one
    cluster each, with α such that p = 1 − e^(−rate); across blocks rates are e^(−c²) times as high.

    Patterns are ``"A1"``, ``"A2"``, ``"A3"`` and ``"full"``, on n tokens in k blocks.

    Paper: equations 5 to 7 and Figure 6.
    """
    c, node, rate = _finite(c), _finite(node), _finite(rate)
    if min(c, rate) <= 0:
        raise SbmtError("c > 0 and a rate > 0", (c, rate), "large ones make patterns sharp")
    query, key = _one_hot(pattern, n, k, relays)
    clusters = c * torch.eye(k, dtype=torch.float64)
    if pattern != "A1" and link == "bilinear":
        clusters[1:] = 0
        query, key = ((node * c * (2 * side[:, :1] - 1) * (clusters[:, 0] > 0)).sigmoid() for side in (query, key))
    block = block_matrix(clusters, link)
    if link == "poisson":
        alpha = math.sqrt(rate / float(block[0, 0]))
        if alpha > 1:
            raise SbmtError(f"a rate of at most {float(block[0, 0]):g} at c = {c:g}", rate, "raise c")
        query, key = alpha * query, alpha * key
    return BlockModel(query[None, None], block[None], key[None, None], link=link)


def edge_law(block_model: BlockModel, sampler: str = "exact") -> Tensor:
    """P(edge) of every pair under a sampler: ``fastrg`` turns the rate r of the bilinear link into 1 − e^(−r)."""
    choose("sampler", sampler, SAMPLERS)
    query, key = block_model.rate_factors()
    return probability(law_of(sampler, block_model.link), query @ key.mT)


def attained(block_model: BlockModel, pattern: Any, sampler: str = "exact") -> Attained:
    """How well the first head of a block model draws a pattern; the diagonal does not count, since loops are added."""
    law, is_wanted = edge_law(block_model, sampler)[0, 0].detach().double().numpy(), as_csr(pattern).toarray()
    if law.shape != is_wanted.shape:
        raise SbmtError(f"a pattern of shape {law.shape}", is_wanted.shape, "build both for the same tokens")
    others = ~np.eye(len(law), dtype=bool)
    inside, outside = law[is_wanted & others], law[~is_wanted & others]
    return Attained(float(inside.min(initial=1.0)), float(outside.max(initial=0.0)))


def saturated_heads(n: int, k: int, node: float | int = 40.0, relays: Relays = "last") -> list[BlockModel]:
    """Corrected lemma (a): k + 2 heads of one cluster each that draw their patterns with probability → 1.

    Head b draws block b, then come A3 and A2. With a single cluster the block matrix is 1, and each head has the whole
    budget; memberships are σ(±node). All conditions hold with probability at least 1 − (Σ m_b² + 2kn)(1 − σ(node)²),
    with n²/k + O(kn) off-diagonal entries. The paper's three heads cannot do this.
    """
    node = _finite(node)
    in_block, _ = _one_hot("A1", n, k, relays)
    stars = (_one_hot(pattern, n, k, relays) for pattern in ("A3", "A2"))
    chosen = [(tokens, tokens) for tokens in in_block.T] + [(query[:, 0], key[:, 0]) for query, key in stars]

    def membership(tokens: Tensor) -> Tensor:
        return (node * (2 * tokens - 1)).sigmoid()[None, None, :, None]

    one = torch.ones(1, 1, 1, dtype=torch.float64)
    return [BlockModel(membership(query), one, membership(key)) for query, key in chosen]


def _finite(given: float | int) -> float:
    most = math.sqrt(sys.float_info.max)  # the square is finite, too
    return as_number(given, "a finite number", "c, node and rate measure how sharp a pattern is", -most, most)


def _one_hot(pattern: str, n: int, k: int, relays: Relays) -> tuple[Tensor, Tensor]:
    """The cluster of each query and key, if any: that of its block for A1, else the first one for the chosen tokens."""
    in_block = torch.eye(k, dtype=torch.float64)[torch.from_numpy(blocks(n, k))]
    everyone, relay = torch.zeros(2, n, k, dtype=torch.float64)
    everyone[:, 0] = 1
    relay[relay_tokens(n, k, relays), 0] = 1
    table = {"A1": (in_block, in_block), "A2": (everyone, relay), "A3": (relay, everyone), "full": (everyone, everyone)}
    return choose("pattern", pattern, table)
