"""Hamiltonian cycles and paths in directed G(n, p) without loops: exact results and limits.

Lemma 1 shows that, at its probability, the *expected number* of Hamiltonian cycles is at least 1. This does not mean
that a cycle exists: the mean degree stays below 4, some token has no incoming arc, and P(cycle) and P(path) tend to 0
as n grows. Throughout, p is an arc probability in [0, 1] or ``"lemma1"``. Other values and n < 1 raise SbmtError.
"""

import math
import sys
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from sbmt.errors import SbmtError, check_sizes
from theory.checks import as_number

Probability = float | int | str
MAX_ENUMERATED = 5  # maximum number of tokens, which gives 2^20 graphs; 6 tokens would give 2^30


class Limit(NamedTuple):
    """Limits of the probabilities of a Hamiltonian cycle and a Hamiltonian path."""

    cycle: float
    path: float


def lemma1_probability(n: int | float) -> float:
    """Returns Lemma 1's edge probability, p_L(n) = (e/n) n^(1/n), for any real n ≥ 1.

    The value decreases in n. **For n ≤ 3 it is above 1**, so it is not a probability; :func:`arc_probability` caps it.
    Since n p_L(n) ≤ 3.921, there are O(n) edges.

    Paper: Lemma 1. In one copy of the text, the exponent 1/n is misprinted as 1/2.

    Example:
        >>> round(lemma1_probability(16), 4)
        0.202
    """
    n = as_number(n, "a number of tokens n ≥ 1", "pass the number of tokens of the graph", 1, sys.float_info.max)
    return math.e / n * n ** (1 / n)


def arc_probability(n: int, p: Probability) -> float:
    """Returns ``p`` if it is a number in [0, 1], or p_L(n), capped at 1, if it is ``"lemma1"``."""
    check_sizes(n=n)
    if isinstance(p, str) and p == "lemma1":
        return min(1.0, lemma1_probability(n))
    return as_number(p, "a probability in [0, 1] or 'lemma1'", "cap p_L at 1 if n ≤ 3", 0, 1)


def expected_hamiltonian_cycles(n: int, p: Probability) -> float:
    """Returns the expected number of Hamiltonian cycles, (n − 1)! pⁿ, or 0 for one token. Overflow gives ∞.

    At p_L(n) this is n! (e/n)ⁿ ≈ √(2πn), which grows, whereas P(a cycle exists) tends to 0.

    Paper: appendix, proof of Lemma 1.
    """
    probability = arc_probability(n, p)
    if n == 1 or probability == 0:
        return 0.0
    log = math.lgamma(n) + n * math.log(probability)
    return math.exp(log) if log < math.log(sys.float_info.max) else math.inf


def prob_no_zero_out_degree(n: int, p: Probability) -> float:
    """Returns P(every token has an outgoing arc) = (1 − q^(n−1))ⁿ with q = 1 − p, an upper bound on P(cycle)."""
    import mpmath

    probability = arc_probability(n, p)
    with mpmath.workdps(400):  # floats reach down to 1e-324
        return float((1 - (1 - mpmath.mpf(probability)) ** (int(n) - 1)) ** int(n))


def prob_all_degrees(n: int, p: Probability) -> float:
    """Returns P(every token has an incoming and an outgoing arc), a tighter upper bound on P(cycle).

    This is Σ_b (−1)^b C(n, b) q^(b(n−1)) (1 − q^(n−b))^b (1 − q^(n−b−1))^(n−b), where b tokens have no incoming arc.
    The sum alternates, so the precision is doubled until at least 20 digits survive the cancellation.
    """
    import mpmath

    probability = arc_probability(n, p)
    n, digits = int(n), 60
    while True:
        with mpmath.workdps(digits):
            q = 1 - mpmath.mpf(probability)
            ways = [(-1) ** b * math.comb(n, b) * q ** (b * (n - 1)) for b in range(n)]
            terms = [way * (1 - q ** (n - b)) ** b * (1 - q ** (n - b - 1)) ** (n - b) for b, way in enumerate(ways)]
            total, noise = mpmath.fsum(terms), max(map(abs, terms)) * mpmath.mpf(10) ** (20 - digits)
            if noise <= total or noise < mpmath.mpf(10) ** -330:  # or below the smallest float
                return max(0.0, float(total))
        digits *= 2


def prob_cycle_exact(n: int, p: Probability) -> float:
    """Computes P(a Hamiltonian cycle exists) for n ≤ 5 by enumerating all 2^(n(n−1)) graphs."""
    probability = arc_probability(n, p)
    if n > MAX_ENUMERATED:
        raise SbmtError(f"n ≤ {MAX_ENUMERATED}", n, "use theory.simulation for larger graphs")
    bit = {pair: 1 << place for place, pair in enumerate(permutations(range(n), 2))}
    graphs = np.arange(1 << len(bit), dtype=np.uint32)
    is_hamiltonian = np.zeros(graphs.size, dtype=bool)
    for rest in permutations(range(1, n)) if n > 1 else ():
        needed = np.uint32(sum(bit[step] for step in pairwise((0, *rest, 0))))
        is_hamiltonian |= (graphs & needed) == needed
    found = graphs[is_hamiltonian]
    n_arcs = sum((((found >> np.uint32(place)) & 1) for place in range(len(bit))), start=np.zeros(found.size))
    return float((probability**n_arcs * (1 - probability) ** (len(bit) - n_arcs)).sum())


def threshold_probability(n: int, c: float | int) -> float:
    """Returns the probability at which directed G(n, p) becomes Hamiltonian, (ln n + c)/n, clamped to [0, 1].

    The additional term ln ln n in textbooks is needed for undirected graphs. Here it is sufficient but not sharp.
    """
    check_sizes(n=n)
    return min(1.0, max(0.0, (math.log(n) + as_number(c, "a number c", "use c in p = (ln n + c)/n")) / n))


def directed_limit(c: float | int) -> Limit:
    """Returns the limits e^(−2L) of P(cycle) and (1 + L)² e^(−2L) of P(path) at p = (ln n + c)/n, with L = e^(−c).

    The limit for cycles is a theorem. The limit for paths rests on an assumption that simulations support: the only
    obstacles are two or more tokens without incoming arcs, or two or more without outgoing arcs.
    """
    rate = math.exp(min(-as_number(c, "a number c", "use c in p = (ln n + c)/n"), 700.0))
    no_obstacle = math.exp(-2 * rate)
    return Limit(no_obstacle, (1 + rate) ** 2 * no_obstacle if no_obstacle > 0 else 0.0)


def matching_deficiency(mean_degree: float | int) -> float:
    """Returns the share of tokens that must start a path in any path cover of directed G(n, c/n), as n → ∞.

    A path cover matches tails to heads, so this share is unmatched in a maximum matching of the bipartite graph of mean
    degree c: (γ + Γ + γΓ)/c − 1, where γ is the smallest root of x = c exp(−c e^(−x)) and Γ = c e^(−γ); γ = Γ for c ≤ e
    (Karp and Sipser, 1981). At p_L the mean degree tends to e and the share to 3/e − 1 = 0.1036.
    """
    from scipy.optimize import brentq
    from scipy.special import lambertw

    c = as_number(mean_degree, "a finite mean degree ≥ 0", "pass n · p", 0, sys.float_info.max)
    if c == 0:
        return 1.0

    def excess(x: float) -> float:
        return x - c * math.exp(-c * math.exp(-x))

    both_equal = float(lambertw(c).real)
    gamma = brentq(excess, 0.0, 1.0, xtol=1e-15) if c > math.e and excess(1.0) > 0 else both_equal
    other = c * math.exp(-gamma)
    return max(0.0, (gamma + other + gamma * other) / c - 1)
