"""Which patterns a block model can draw: the block budget, explicit models, and how many edges they have.

The paper's block matrix is a softmax over all k² entries. It sums to 1, so the blocks share one unit of probability.
Under the Poisson link rates are unbounded and there is no such budget: A1 is drawn with p → 1 by a single head, the
least block size is 4 for every k, which relays can join, and Algorithm 1 is exact. That does not repair Lemma 1, O(kn)
instead of O(n) edges, the order of the patterns, relays visited twice, or E[softmax] against softmax on the support.
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
from theory.checks import as_number, is_number
from theory.conditions import as_csr
from theory.patterns import Relays, block_sizes, blocks, relay_tokens
from theory.random_graphs import lemma1_probability

BLOCK_CAPS: dict[str, Callable[[int], float]] = {
    "bernoulli": lambda k: 1 / k,
    "fastrg": lambda k: -math.expm1(-1 / k),
    "poisson": lambda k: math.nextafter(1.0, 0.0),  # every p below 1
}


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

    Raises:
        SbmtError: Unless groups ≥ 1 and p_out lies in [0, 1].
    """
    check_sizes(groups=groups)
    p_out = as_number(p_out, "p_out in [0, 1]", "give the mean probability of edges between blocks", 0, 1)
    groups = int(groups)  # dividing by NumPy's small integers gives half precision
    return 1 / groups + (groups - 1) / 2 * p_out


def block_cap(k: int, law: str = "bernoulli") -> float:
    """The largest probability of edges within k blocks without any between blocks; it follows from equation 5.

    By law: ``"bernoulli"`` (bilinear link, exact samplers) 1/k; ``"fastrg"`` (bilinear link, Algorithm 1, whose
    repeated draws collapse) 1 − e^(−1/k); ``"poisson"`` (Poisson link, any sampler) below 1.

    Raises:
        SbmtError: Unless k ≥ 1 and the law is known.
    """
    check_sizes(k=k)
    return choose("law", law, BLOCK_CAPS)(int(k))


def min_block_size(k: int, law: str = "bernoulli") -> int:
    """The least m for which k blocks of m tokens can have Lemma 1's probability: p_L(m) ≤ :func:`block_cap`.

    Under the budget 1/k this is m ≈ ek + ln(ek), so n = km ≈ ek² + k ln(ek).

    Raises:
        SbmtError: Unless k ≥ 1 and the law is known.

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

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n and the law is known.

    Example:
        >>> fits_in_block_budget(16, 4).is_enough  # the paper's own figure
        False
    """
    needed, cap = lemma1_probability(min(block_sizes(n, k))), block_cap(k, law)
    return Budget(needed, cap, needed <= cap)


def block_matrix(clusters: Tensor, link: Link = "bilinear") -> Tensor:
    """The layer's block matrix of clusters C: softmax of C Cᵀ over all entries (equation 5), or our exp(C Cᵀ)/k².

    Raises:
        SbmtError: If the link is unknown.
    """
    check_choice("link", link, Link)
    gram = clusters @ clusters.T  # not clamped, as a layer's is: the theory's clusters may be as long as they like
    return gram.exp() / gram.numel() if link == "poisson" else gram.flatten().softmax(0).view_as(gram)


def one_hot_block(k: int, c: float | int, membership: float | int = 1.0) -> tuple[float, float]:
    """In-block and cross-block probability of k blocks with clusters C = c I, each token in one cluster.

    S_bb = 1/(k + k(k − 1) e^(−c²)) → 1/k, and e^(−c²) times that off the diagonal; the membership enters squared.

    Raises:
        SbmtError: Unless k ≥ 1, c is finite and the membership lies in [0, 1].
    """
    check_sizes(k=k)
    if not _is_finite(c) or not is_number(membership, 0, 1):
        raise SbmtError("a finite c and a membership in [0, 1]", (c, membership), "tokens belong to a cluster at most")
    ratio = math.exp(-float(c) * float(c))
    in_block = float(membership) ** 2 / (int(k) + int(k) * (int(k) - 1) * ratio)
    return in_block, in_block * ratio if k > 1 else 0.0


def spread_clusters(k: int, c: float | int) -> Tensor:
    """Linearly independent clusters ``(k, k)`` of norm c that point apart: C Cᵀ = c² ((1 + 1/k) I − 1/k).

    Raises:
        SbmtError: Unless k ≥ 1.
    """
    check_sizes(k=k)
    k = int(k)
    mean = torch.full((k, k), 1 / k, dtype=torch.float64)
    deviation = torch.eye(k, dtype=torch.float64) - mean
    return float(c) * (math.sqrt(1 + 1 / k) * deviation + math.sqrt(1 / k) * mean)


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
    the first cluster and the others its negative; p → 1. *Poisson*: :func:`spread_clusters` and memberships α or 0 in
    one cluster each, with α such that p = 1 − e^(−rate); across blocks rates are e^(−c² (1 + 1/k)) times as high. These
    clusters are linearly independent, so nodes with these memberships exist.

    Args:
        pattern: ``"A1"``, ``"A2"``, ``"A3"`` or ``"full"``.
        n: Tokens.
        k: Blocks, and clusters.
        link: ``"bilinear"`` or ``"poisson"``.
        c: Norm of the clusters; larger is sharper.
        node: How far nodes lie along the first cluster.
        rate: Rate of the pattern's edges under the Poisson link.
        relays: See :func:`~theory.patterns.relay_tokens`.

    Raises:
        SbmtError: If a name, a size or a number is invalid, or c is too small for the rate under the Poisson link.

    Paper: equations 5 to 7 and Figure 6.
    """
    if not all(map(_is_finite, (c, node, rate))) or min(c, rate) <= 0:
        raise SbmtError("c > 0, a rate > 0 and a node, all finite", (c, rate, node), "large ones make patterns sharp")
    c, node, rate = float(c), float(node), float(rate)
    check_choice("link", link, Link)
    query, key = _one_hot(pattern, n, k, relays)
    if link == "poisson":
        block = block_matrix(spread_clusters(k, c), link)
        alpha = math.sqrt(rate / float(block[0, 0]))
        if alpha > 1:
            raise SbmtError(f"a rate of at most {float(block[0, 0]):g} at c = {c:g}", rate, "raise c")
        query, key = alpha * query, alpha * key
    elif pattern == "A1":
        block = block_matrix(c * torch.eye(k, dtype=torch.float64))
    else:
        clusters = torch.zeros(k, k, dtype=torch.float64)
        clusters[0, 0] = c
        block = block_matrix(clusters)
        query, key = ((node * (2 * side[:, :1] - 1) @ clusters[:, :1].T).sigmoid() for side in (query, key))
    return BlockModel(query[None, None], block[None], key[None, None], link=link)


def edge_law(block_model: BlockModel, sampler: str = "exact") -> Tensor:
    """P(edge) of every pair under a sampler: ``fastrg`` turns the rate r of the bilinear link into 1 − e^(−r).

    Raises:
        SbmtError: If the sampler is unknown.
    """
    choose("sampler", sampler, SAMPLERS)
    query, key = block_model.rate_factors()
    return probability(law_of(sampler, block_model.link), query @ key.mT)


def law_and_pattern(block_model: BlockModel, pattern: Any, sampler: str = "exact") -> tuple[np.ndarray, np.ndarray]:
    """The edge law of a block model's first head beside a pattern, without their diagonals, since loops are added.

    Raises:
        SbmtError: If the pattern is not boolean or of another shape, or the sampler is unknown.
    """
    law, dense = edge_law(block_model, sampler)[0, 0].detach().double().numpy(), as_csr(pattern).toarray()
    if law.shape != dense.shape:
        raise SbmtError(f"a pattern of shape {law.shape}", dense.shape, "build both for the same tokens")
    off_diagonal = ~np.eye(len(law), dtype=bool)
    return law[off_diagonal], dense[off_diagonal]


def attained(block_model: BlockModel, pattern: Any, sampler: str = "exact") -> Attained:
    """How well the first head of a block model draws a pattern; the diagonal does not count, since loops are added.

    Raises:
        SbmtError: If the pattern is not boolean or of another shape, or the sampler is unknown.
    """
    law, is_wanted = law_and_pattern(block_model, pattern, sampler)
    return Attained(float(law[is_wanted].min(initial=1.0)), float(law[~is_wanted].max(initial=0.0)))


def saturated_heads(n: int, k: int, node: float | int = 40.0, relays: Relays = "last") -> list[BlockModel]:
    """Corrected lemma (a): k + 2 heads of one cluster each that draw their patterns with probability → 1.

    Head b draws block b, then come A3 and A2. With a single cluster the block matrix is 1, and each head has the whole
    budget; memberships are σ(±node). All conditions hold with probability at least 1 − (Σ m_b² + 2kn)(1 − σ(node)²),
    with n²/k + O(kn) off-diagonal entries. The paper's three heads cannot do this.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n, the relays are valid and node is a finite number.
    """
    if not _is_finite(node):
        raise SbmtError("a finite node", node, "give the logit of a membership")
    node = float(node)
    block = torch.from_numpy(blocks(n, k))
    heads = [((block == b).double(), (block == b).double()) for b in range(k)]
    for pattern in ("A3", "A2"):
        query, key = _one_hot(pattern, n, k, relays)
        heads.append((query[:, 0], key[:, 0]))
    one = torch.ones(1, 1, 1, dtype=torch.float64)

    def membership(chosen: Tensor) -> Tensor:
        return (node * (2 * chosen - 1)).sigmoid()[None, None, :, None]

    return [BlockModel(membership(query), one, membership(key)) for query, key in heads]


def _is_finite(given: Any) -> bool:
    return is_number(given, -sys.float_info.max, sys.float_info.max)


def _one_hot(pattern: str, n: int, k: int, relays: Relays) -> tuple[Tensor, Tensor]:
    """The cluster of each query and key, if any: that of its block for A1, else the first one for the chosen tokens."""
    in_block = torch.eye(k, dtype=torch.float64)[torch.from_numpy(blocks(n, k))]
    everyone, relay = torch.zeros(2, n, k, dtype=torch.float64)
    everyone[:, 0] = 1
    relay[relay_tokens(n, k, relays), 0] = 1
    table = {"A1": (in_block, in_block), "A2": (everyone, relay), "A3": (relay, everyone), "full": (everyone, everyone)}
    return choose("pattern", pattern, table)
