"""What samplers turn a block model into: rates, collapsing repeated draws, edge counts, and means over masks."""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Num

from sbmt.block_model.model import check_exploration
from sbmt.errors import SbmtError, check_sizes
from theory.checks import as_floats, as_number
from theory.patterns import Relays, block_sizes, blocks, pattern_counts, relay_tokens, three_patterns
from theory.random_graphs import Probability, arc_probability

Matrix = Num[np.ndarray, "_ _"] | Sequence[Sequence[float | int]]
MAX_MASKS = 1 << 18


class Rates(NamedTuple):
    """Poisson rates of Algorithm 1.

    Attributes:
        total: Mean number of draws, Σ_ij r_ij.
        edge: r_ij = Y_i B Z_jᵀ, which is also the mean number of times that the pair is drawn.
        probability: P(M_ij = 1) = 1 − e^(−r_ij), since repetitions collapse.
        distinct: Mean number of distinct edges.
        printed_total: Mean number of draws of the algorithm as printed, where D_Y and D_Z are inverted.
    """

    total: float
    edge: np.ndarray
    probability: np.ndarray
    distinct: float
    printed_total: float


class MaskMeans(NamedTuple):
    """One token's attention under a random mask, averaged in three ways."""

    expectation: np.ndarray
    on_support: np.ndarray
    weighted: np.ndarray


def fastrg_rates(query: Matrix, block_matrix: Matrix, key: Matrix) -> Rates:
    """Rates of Algorithm 1, as intended and as printed, for memberships Y ``(n, k)``, Z ``(m, k)`` and B ``(k, k)``.

    With D_Y the column sums of Y, Ȳ = Y D_Y⁻¹ and B̄ = D_Y B D_Z, drawing (u, v) from B̄ and then i from Ȳ_u, j from
    Z̄_v gives the pair (i, j) the rate Y_i B Z_jᵀ. In print D_Y and D_Z are inverted, and a column of zeros makes the
    rate infinite.

    Raises:
        SbmtError: If shapes do not fit or an entry is negative or not finite.
    """
    do = "memberships and rates are not negative"
    y, b, z = (as_floats(part, "rows of finite numbers ≥ 0", do, 0) for part in (query, block_matrix, key))
    shapes = (y.shape, b.shape, z.shape)
    if any(len(shape) != 2 for shape in shapes) or not y.shape[1] == z.shape[1] == b.shape[0] == b.shape[1]:
        raise SbmtError("shapes (n, k), (k, k), (m, k)", shapes, "give one number of clusters")
    edge = y @ b @ z.T
    printed = sum(
        b[u, v] / (y[:, u].sum() * z[:, v].sum()) if y[:, u].sum() * z[:, v].sum() else math.inf
        for u, v in zip(*b.nonzero(), strict=True)
    )
    probability = -np.expm1(-edge)
    return Rates(float(edge.sum()), edge, probability, float(probability.sum()), float(printed))


def fastrg_max_density(exploration: float | int = 0.0) -> float:
    """The largest density of Algorithm 1's masks, reached if every p is 1: 1 − e^(−(1 + δ)), δ added to every rate.

    Raises:
        SbmtError: Unless 0 ≤ δ < 1.

    Paper: section 4.2 says that full attention can be attained; Algorithm 1 under the paper's link cannot attain it.
    """
    return -math.expm1(-(1 + _exploration(exploration)))


def two_hop_miss(k: int, relay_probability: float | int | None = None) -> float:
    """P(non-relay i does not see non-relay j ≠ i through k relays after layers A3 and A2) = (1 − q²)^k.

    Each relay arc is drawn independently with probability q; by default Algorithm 1's 1 − 1/e.

    Raises:
        SbmtError: Unless k ≥ 1 and q lies in [0, 1].
    """
    check_sizes(k=k)
    given = fastrg_max_density() if relay_probability is None else relay_probability
    q = as_number(given, "a relay probability in [0, 1]", "see P(M = 1)", 0, 1)
    return (1 - q * q) ** int(k)


def simulate_two_hops(n: int, k: int, n_draws: int, *, seed: int = 0) -> int:
    """In how many draws layers A3 and A2 connect all pairs, their relay arcs drawn by Algorithm 1 at p = 1.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n and n_draws ≥ 1.
    """
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

    Args:
        n: Tokens.
        k: Blocks.
        p: In-block probability, or ``"lemma1"`` for each block's own p_L, capped at 1.
        self_loops: Whether the diagonal counts.
        relays: See :func:`~theory.patterns.relay_tokens`.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n, p is a probability or ``"lemma1"``, and the relays are valid.

    Paper: the proof of Theorem 1 in the appendix says O(kn); section 4.3 says O(n).
    """
    chosen = relay_tokens(n, k, relays)
    rest = np.bincount(np.delete(blocks(n, k), chosen), minlength=k)
    sizes, n = block_sizes(n, k), int(n)
    in_block = [arc_probability(size, p) for size in sizes]
    many, loops = len(chosen), n if self_loops else 0
    star = float(loops + many * (n - 1))
    blocks_drawn = loops + sum(size * (size - 1) * q for size, q in zip(sizes, in_block, strict=True))
    both_stars = loops + 2 * many * (n - 1) - many * (many - 1)
    union = both_stars + sum(int(size) * (int(size) - 1) * q for size, q in zip(rest, in_block, strict=True))
    return {"A1": blocks_drawn, "A2": star, "A3": star, "sum": blocks_drawn + 2 * star, "union": union}


def support_entries(n: int, k: int) -> int:
    """Entries of the three patterns if a pattern is the support of E[M], so that blocks are complete.

    They are n²/k + 2kn + 2n − 2k, least near k = √(n/2) with about 2.83 n^1.5.

    Raises:
        SbmtError: Unless 1 ≤ k ≤ n.
    """
    counts = pattern_counts(n, k)
    return counts["A1"] + counts["A2"] + counts["A3"]


def exploration_edges(n: int, exploration: float | int) -> float:
    """The most edges that exploration adds in expectation: δ n².

    Raises:
        SbmtError: Unless n ≥ 1 and 0 ≤ δ < 1.
    """
    check_sizes(n=n)
    return _exploration(exploration) * int(n) * int(n)


def mask_means(
    probability: float | int | Sequence[float | int],
    values: Sequence[float | int] | Sequence[Sequence[float | int]],
    scores: Sequence[float | int],
    self_loop: bool = True,
) -> MaskMeans:
    """E[softmax over a random mask] against the softmax on the mask's support, and weighted by P(M_j = 1).

    The three differ, so a statement about the support of E[M] does not carry over to E[g(X)].

    Args:
        probability: P(M_j = 1) of each key, or one for all; keys are drawn independently.
        values: One number or vector per key.
        scores: One score per key.
        self_loop: Whether the first key is always attended.

    Returns:
        ``expectation``, exact, by enumerating all masks (the empty mask gives 0); ``on_support``, over all keys with
        P > 0; ``weighted``, with weights proportional to P(M_j = 1) e^score.

    Raises:
        SbmtError: On different lengths, numbers that are not finite, probabilities outside [0, 1], or more than 2^18
            masks.
    """
    expected, do = "lists of finite values and scores, one per key", "leave keys without a score out"
    value, score = (as_floats(part, expected, do) for part in (values, scores))
    p = as_floats(probability, "probabilities in [0, 1]", "give P(M_j = 1)", 0, 1)
    n = score.size
    if score.ndim != 1 or value.ndim not in (1, 2) or len(value) != n or n < 1:
        raise SbmtError(expected, f"shapes {value.shape} and {score.shape}", "match them")
    if p.shape not in ((), (n,)):
        raise SbmtError("one probability, or one per key", f"shape {p.shape} for {n} keys", "match them")
    p = np.array(np.broadcast_to(p, n))
    if self_loop:
        p[0] = 1.0
    weight = np.exp(score - score.max())
    open_keys = np.flatnonzero((p > 0) & (p < 1))
    if 1 << open_keys.size > MAX_MASKS:
        raise SbmtError(f"at most {MAX_MASKS} masks", f"2^{open_keys.size}", "average draws instead")

    def attend(relative: np.ndarray) -> np.ndarray:
        total = relative.sum()
        return np.asarray(relative @ value / total if total > 0 else 0.0 * value[0])

    expectation = np.zeros_like(value[0])
    for bits in product((0.0, 1.0), repeat=open_keys.size):
        mask = (p == 1).astype(np.float64)
        mask[open_keys] = bits
        chance = np.where(mask > 0, p, 1 - p).prod()
        expectation = expectation + chance * attend(mask * weight)
    return MaskMeans(np.asarray(expectation), attend((p > 0) * weight), attend(p * weight))


def _exploration(given: float | int) -> float:
    exploration = as_number(given, "exploration δ in [0, 1)", "0 switches it off")
    check_exploration(exploration)
    return exploration
