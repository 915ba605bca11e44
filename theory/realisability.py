"""Explicit block models that show which patterns can be drawn, with the rates and edge counts of each sampler.

The paper's block matrix is a softmax over all k² entries. It sums to 1, so the blocks share one unit of probability.
With the Poisson link, rates are unbounded and there is no such budget: a single head draws A1 with p → 1, blocks of 4
tokens suffice for every k, and Algorithm 1 is exact. Other errors remain: Lemma 1, the claim of O(n) instead of O(kn)
edges, the order of the patterns, relays that are visited twice, and E[softmax] taken for the softmax on the support.

Numbers out of range, wrong shapes and unknown names raise SbmtError.
"""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor

from sbmt.block_model.model import BlockModel, Link, probability
from sbmt.errors import SbmtError, check_choice, check_sizes, choose
from sbmt.samplers import SAMPLERS, law_of
from theory.checks import as_floats, as_number
from theory.conditions import as_csr
from theory.patterns import Relays, block_sizes, blocks, relay_tokens, three_patterns
from theory.random_graphs import Probability, arc_probability, lemma1_probability

Matrix = Num[np.ndarray, "_ _"] | Sequence[Sequence[float | int]]

BLOCK_CAPS: dict[str, Callable[[int], float]] = {
    "bernoulli": lambda k: 1 / k,  # bilinear link with exact samplers
    "fastrg": lambda k: -math.expm1(-1 / k),  # bilinear link with Algorithm 1, which merges repeated draws
    "poisson": lambda k: math.nextafter(1.0, 0.0),  # Poisson link with any sampler, which allows every p below 1
}
"""Maps each law to the largest probability of edges within k blocks, which follows from equation 5."""


class Budget(NamedTuple):
    """The probability that a block needs, the largest probability that it can have, and whether this is enough."""

    needed: float
    cap: float
    is_enough: bool


class Attained(NamedTuple):
    """Off-diagonal edge probabilities: the smallest on the pattern and the largest elsewhere."""

    inside: float
    outside: float


def in_block_bound(groups: int, p_out: float | int) -> float:
    """Bounds the mean in-block probability of g equal blocks by 1/g + (g − 1)/2 · p_out, for any clusters.

    The matrix of probabilities is a convex mixture of rectangles, and a 0/1 rectangle with t diagonal blocks also has
    t² − t other blocks; t/g ≤ 1/g + (t² − t)/(2g) for integer t. The bound is tight if clusters are all 2-subsets.
    ``p_out`` is the mean probability across blocks. A bound above 1 is vacuous.
    """
    check_sizes(groups=groups)
    p_out = as_number(p_out, "p_out in [0, 1]", "give the mean probability of edges between blocks", 0, 1)
    groups = int(groups)  # dividing by NumPy's small integers gives half precision
    return 1 / groups + (groups - 1) / 2 * p_out


def block_cap(k: int, law: str = "bernoulli") -> float:
    """Returns the largest probability of edges within k blocks if there are none between blocks."""
    check_sizes(k=k)
    return choose("law", law, BLOCK_CAPS)(int(k))


def min_block_size(k: int, law: str = "bernoulli") -> int:
    """Returns the smallest m for which k blocks of m tokens can have Lemma 1's probability: p_L(m) ≤ :func:`block_cap`.

    Under the budget 1/k, m ≈ ek + ln(ek), so n = km ≈ ek² + k ln(ek).

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
    """Checks whether the smallest of k blocks, with ⌊n/k⌋ tokens, can have Lemma 1's probability (not in Figure 6)."""
    needed, cap = lemma1_probability(min(block_sizes(n, k))), block_cap(k, law)
    return Budget(needed, cap, needed <= cap)


def block_matrix(clusters: Tensor, link: Link = "bilinear") -> Tensor:
    """Computes a layer's block matrix from clusters C: softmax(C Cᵀ) over all entries (equation 5), or exp(C Cᵀ)/k²."""
    check_choice("link", link, Link)
    gram = clusters @ clusters.T  # not clamped as in a layer, because clusters may have any length here
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
    """Builds a block model of one head that draws a pattern, except for self-loops, as well as its link allows.

    *Bilinear, A1*: clusters are C = c I and memberships one-hot, so p → 1/k, the whole budget. *Bilinear, others*: one
    cluster has norm c; the others are at the origin, where every membership is σ(0) = ½. In the first, chosen tokens
    have logit ``node · c`` and other tokens its negative, so p → 1. *Poisson*: clusters are C = c I, and tokens have
    membership α in one cluster, so p = 1 − e^(−rate). Rates across blocks are smaller by a factor of e^(−c²).

    Patterns are ``"A1"``, ``"A2"``, ``"A3"`` and ``"full"``, on n tokens in k blocks.

    Paper: equations 5 to 7 and Figure 6.
    """
    c, node, rate = _finite(c), _finite(node), _finite(rate)
    if min(c, rate) <= 0:
        raise SbmtError("c > 0 and a rate > 0", (c, rate), "use large values for sharp patterns")
    query, key = _one_hot(pattern, n, k, relays)
    clusters = c * torch.eye(k, dtype=torch.float64)
    if pattern != "A1" and link == "bilinear":
        clusters[1:] = 0
        query, key = ((node * c * (2 * side[:, :1] - 1) * (clusters[:, 0] > 0)).sigmoid() for side in (query, key))
    block = block_matrix(clusters, link)
    if link == "poisson":
        alpha = math.sqrt(rate / float(block[0, 0]))
        if alpha > 1:
            raise SbmtError(f"a rate of at most {float(block[0, 0]):g} at c = {c:g}", rate, "increase c")
        query, key = alpha * query, alpha * key
    return BlockModel(query[None, None], block[None], key[None, None], link=link)


def edge_law(block_model: BlockModel, sampler: str = "exact") -> Tensor:
    """Returns P(edge) of every pair under a sampler. ``fastrg`` converts a bilinear rate r to 1 − e^(−r)."""
    choose("sampler", sampler, SAMPLERS)
    query, key = block_model.rate_factors()
    return probability(law_of(sampler, block_model.link), query @ key.mT)


def attained(block_model: BlockModel, pattern: Any, sampler: str = "exact") -> Attained:
    """Measures how well the first head draws a pattern, ignoring the diagonal, because self-loops are added."""
    law, is_wanted = edge_law(block_model, sampler)[0, 0].detach().double().numpy(), as_csr(pattern).toarray()
    if law.shape != is_wanted.shape:
        raise SbmtError(f"a pattern of shape {law.shape}", is_wanted.shape, "use the same tokens for both")
    others = ~np.eye(len(law), dtype=bool)
    inside, outside = law[is_wanted & others], law[~is_wanted & others]
    return Attained(float(inside.min(initial=1.0)), float(outside.max(initial=0.0)))


def saturated_heads(n: int, k: int, node: float | int = 40.0, relays: Relays = "last") -> list[BlockModel]:
    """Builds k + 2 heads of one cluster each, which draw their patterns with probability → 1 (corrected lemma (a)).

    Head b draws block b, and the last two heads draw A3 and A2. With a single cluster, the block matrix is 1, so each
    head has the whole budget; memberships are σ(±node). All conditions hold with probability at least 1 − (Σ m_b² +
    2kn)(1 − σ(node)²), with n²/k + O(kn) off-diagonal entries. The paper's three heads cannot do this.
    """
    node = _finite(node)
    in_block, _ = _one_hot("A1", n, k, relays)
    stars = (_one_hot(pattern, n, k, relays) for pattern in ("A3", "A2"))
    chosen = [(tokens, tokens) for tokens in in_block.T] + [(query[:, 0], key[:, 0]) for query, key in stars]

    def membership(tokens: Tensor) -> Tensor:
        return (node * (2 * tokens - 1)).sigmoid()[None, None, :, None]

    one = torch.ones(1, 1, 1, dtype=torch.float64)
    return [BlockModel(membership(query), one, membership(key)) for query, key in chosen]


class Rates(NamedTuple):
    """The Poisson rates of Algorithm 1."""

    total: float  # mean number of draws, Σ_ij r_ij
    edge: np.ndarray  # r_ij = Y_i B Z_jᵀ, the mean number of times that the pair is drawn
    probability: np.ndarray  # P(M_ij = 1) = 1 − e^(−r_ij), since repeated draws are merged
    distinct: float  # mean number of distinct edges
    printed_total: float  # mean number of draws of the printed algorithm, where D_Y and D_Z are inverted


def fastrg_rates(query: Matrix, block_matrix: Matrix, key: Matrix) -> Rates:
    """Computes the rates of Algorithm 1, as intended and as printed, from Y ``(n, k)``, B ``(k, k)`` and Z ``(m, k)``.

    Let D_Y be the column sums of Y, Ȳ = Y D_Y⁻¹ and B̄ = D_Y B D_Z. Drawing (u, v) from B̄, then i from Ȳ_u and j from
    Z̄_v, gives the pair (i, j) the rate Y_i B Z_jᵀ. The paper prints D_Y and D_Z inverted, so that a column of zeros
    makes the rate infinite.
    """
    do = "pass non-negative memberships and rates"
    y, b, z = (as_floats(part, "rows of finite numbers ≥ 0", do, 0) for part in (query, block_matrix, key))
    shapes = (y.shape, b.shape, z.shape)
    if any(len(shape) != 2 for shape in shapes) or not y.shape[1] == z.shape[1] == b.shape[0] == b.shape[1]:
        raise SbmtError("shapes (n, k), (k, k), (m, k)", shapes, "use the same number of clusters k")
    edge = y @ b @ z.T
    with np.errstate(divide="ignore"):
        printed = (b[b > 0] / np.outer(y.sum(0), z.sum(0))[b > 0]).sum()
    chance = -np.expm1(-edge)
    return Rates(float(edge.sum()), edge, chance, float(chance.sum()), float(printed))


def fastrg_max_density(exploration: float | int = 0.0) -> float:
    """Returns the largest density of Algorithm 1's masks, 1 − e^(−(1 + δ)), for p = 1 everywhere and exploration δ.

    Paper: section 4.2 says that full attention can be attained, but with the paper's link, Algorithm 1 cannot do so.
    """
    return -math.expm1(-(1 + _delta(exploration)))


def two_hop_miss(k: int, relay_probability: float | int | None = None) -> float:
    """Returns P(non-relay i does not reach non-relay j ≠ i through k relays in layers A3 and A2) = (1 − q²)^k.

    Each relay arc is drawn independently with probability q, by default 1 − 1/e as in Algorithm 1.
    """
    check_sizes(k=k)
    given = fastrg_max_density() if relay_probability is None else relay_probability
    q = as_number(given, "a relay probability in [0, 1]", "pass P(M = 1) of a relay arc", 0, 1)
    return (1 - q * q) ** int(k)


def simulate_two_hops(n: int, k: int, n_draws: int, *, seed: int = 0) -> int:
    """Counts the draws in which layers A3 and A2 connect all pairs, if Algorithm 1 draws their relay arcs at p = 1."""
    check_sizes(n_draws=n_draws)
    _, spread, gather = three_patterns(n, k)
    rng, loops, hits = np.random.default_rng(seed), np.eye(n, dtype=bool), 0
    for _ in range(n_draws):
        layers = [(part & (rng.random((n, n)) < fastrg_max_density())) | loops for part in (spread, gather)]
        paths = layers[0].astype(np.float32) @ layers[1].astype(np.float32)
        hits += bool((paths > 0).all())
    return hits


def expected_entries(
    n: int, k: int, p: Probability = "lemma1", *, self_loops: bool = True, relays: Relays = "last"
) -> dict[str, float]:
    """Computes the expected numbers of entries of ``A1``, ``A2``, ``A3``, their ``sum`` and their ``union``.

    With R = k relays and m = n/k, A1 has n + n(m − 1)p entries, ≈ (e + 1)n at p_L(m), and A2 and A3 have nk + n − k.
    Their sum is about (e + 3)n + 2kn and the union about 2kn + (e + 1)n − k², which is O(kn), and O(n) only for bounded
    k. Only block arcs are random. ``"lemma1"`` is each block's p_L, capped at 1; ``self_loops`` counts the diagonal.

    Paper: the proof of Theorem 1 in the appendix says O(kn); section 4.3 says O(n).
    """
    chosen, sizes = relay_tokens(n, k, relays), np.array(block_sizes(n, k))
    rest = np.bincount(np.delete(blocks(n, k), chosen), minlength=k)
    in_block = np.array([arc_probability(int(size), p) for size in sizes])
    n, many = int(n), len(chosen)
    loops = n if self_loops else 0
    star = float(loops + many * (n - 1))
    blocks_drawn = loops + float((sizes * (sizes - 1) * in_block).sum())
    union = loops + 2 * many * (n - 1) - many * (many - 1) + float((rest * (rest - 1) * in_block).sum())
    return {"A1": blocks_drawn, "A2": star, "A3": star, "sum": blocks_drawn + 2 * star, "union": union}


def exploration_edges(n: int, exploration: float | int) -> float:
    """Returns the largest expected number of edges that exploration adds, δ n², for 0 ≤ δ < 1."""
    check_sizes(n=n)
    return _delta(exploration) * int(n) * int(n)


def _delta(given: float | int) -> float:
    return as_number(given, "exploration δ in [0, 1)", "use 0 for none", 0, math.nextafter(1.0, 0.0))


def _finite(given: float | int) -> float:
    most = math.sqrt(sys.float_info.max)  # the square must be finite, too
    return as_number(given, "finite c, node and rate", "use moderate values", -most, most)


def _one_hot(pattern: str, n: int, k: int, relays: Relays) -> tuple[Tensor, Tensor]:
    """Returns one-hot clusters of queries and keys, by block for A1; otherwise, chosen tokens are in the first."""
    in_block = torch.eye(k, dtype=torch.float64)[torch.from_numpy(blocks(n, k))]
    everyone, relay = torch.zeros(2, n, k, dtype=torch.float64)
    everyone[:, 0] = 1
    relay[relay_tokens(n, k, relays), 0] = 1
    table = {"A1": (in_block, in_block), "A2": (everyone, relay), "A3": (relay, everyone), "full": (everyone, everyone)}
    return choose("pattern", pattern, table)
