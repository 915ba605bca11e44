"""What samplers turn a block model into: rates, collapsing repeated draws, and edge counts.

Numbers out of range and shapes that do not fit raise SbmtError.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Num

from sbmt.block_model.model import check_exploration
from sbmt.errors import SbmtError, check_sizes
from theory.checks import as_floats, as_number
from theory.patterns import Relays, block_sizes, blocks, pattern_counts, relay_tokens, three_patterns
from theory.random_graphs import Probability, arc_probability

Matrix = Num[np.ndarray, "_ _"] | Sequence[Sequence[float | int]]


class Rates(NamedTuple):
    """Poisson rates of Algorithm 1."""

    total: float  # mean number of draws, Σ_ij r_ij
    edge: np.ndarray  # r_ij = Y_i B Z_jᵀ, which is also the mean number of times that the pair is drawn
    probability: np.ndarray  # P(M_ij = 1) = 1 − e^(−r_ij), since repetitions collapse
    distinct: float  # mean number of distinct edges
    printed_total: float  # mean number of draws of the algorithm as printed, where D_Y and D_Z are inverted


def fastrg_rates(query: Matrix, block_matrix: Matrix, key: Matrix) -> Rates:
    """Rates of Algorithm 1, as intended and as printed, for memberships Y ``(n, k)``, Z ``(m, k)`` and B ``(k, k)``.

    With D_Y the column sums of Y, Ȳ = Y D_Y⁻¹ and B̄ = D_Y B D_Z, drawing (u, v) from B̄ and then i from Ȳ_u, j from
    Z̄_v gives the pair (i, j) the rate Y_i B Z_jᵀ. In print D_Y and D_Z are inverted, and a column of zeros makes the
    rate infinite.
    """
    do = "memberships and rates are not negative"
    y, b, z = (as_floats(part, "rows of finite numbers ≥ 0", do, 0) for part in (query, block_matrix, key))
    shapes = (y.shape, b.shape, z.shape)
    if any(len(shape) != 2 for shape in shapes) or not y.shape[1] == z.shape[1] == b.shape[0] == b.shape[1]:
        raise SbmtError("shapes (n, k), (k, k), (m, k)", shapes, "give one number of clusters")
    edge = y @ b @ z.T
    with np.errstate(divide="ignore"):
        printed = (b[b > 0] / np.outer(y.sum(0), z.sum(0))[b > 0]).sum()
    probability = -np.expm1(-edge)
    return Rates(float(edge.sum()), edge, probability, float(probability.sum()), float(printed))


def fastrg_max_density(exploration: float | int = 0.0) -> float:
    """The largest density of Algorithm 1's masks, reached if every p is 1: 1 − e^(−(1 + δ)), δ added to every rate.

    Paper: section 4.2 says that full attention can be attained; Algorithm 1 under the paper's link cannot attain it.
    """
    return -math.expm1(-(1 + _exploration(exploration)))


def two_hop_miss(k: int, relay_probability: float | int | None = None) -> float:
    """P(non-relay i does not see non-relay j ≠ i through k relays after layers A3 and A2) = (1 − q²)^k.

    Each relay arc is drawn independently with probability q; by default Algorithm 1's 1 − 1/e.
    """
    check_sizes(k=k)
    given = fastrg_max_density() if relay_probability is None else relay_probability
    q = as_number(given, "a relay probability in [0, 1]", "see P(M = 1)", 0, 1)
    return (1 - q * q) ** int(k)


def simulate_two_hops(n: int, k: int, n_draws: int, *, seed: int = 0) -> int:
    """In how many draws layers A3 and A2 connect all pairs, their relay arcs drawn by Algorithm 1 at p = 1."""
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
    """Expected entries ``A1``, ``A2``, ``A3``, their ``sum`` and their ``union``; blocks are drawn, relay arcs certain.

    With R = k relays and m = n/k: A1 has n + n(m − 1)p ≈ (e + 1)n at p_L(m), A2 and A3 have nk + n − k, their sum is
    about (e + 3)n + 2kn and the union about 2kn + (e + 1)n − k². That is O(kn), and O(n) only for bounded k.
    ``"lemma1"`` is each block's own p_L, capped at 1; without ``self_loops`` the diagonal does not count.

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


def support_entries(n: int, k: int) -> int:
    """Entries of the three patterns if a pattern is the support of E[M], so that blocks are complete.

    They are n²/k + 2kn + 2n − 2k, least near k = √(n/2) with about 2.83 n^1.5.
    """
    counts = pattern_counts(n, k)
    return counts["A1"] + counts["A2"] + counts["A3"]


def exploration_edges(n: int, exploration: float | int) -> float:
    """The most edges that exploration adds in expectation: δ n², for 0 ≤ δ < 1."""
    check_sizes(n=n)
    return _exploration(exploration) * int(n) * int(n)


def _exploration(given: float | int) -> float:
    exploration = as_number(given, "exploration δ in [0, 1)", "0 switches it off")
    check_exploration(exploration)
    return exploration
