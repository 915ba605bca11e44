"""Statements about random graphs: Lemma 1 and what it does not give."""

from collections.abc import Callable
from math import e, sqrt

from theory.draws import Estimate
from theory.random_graphs import (
    directed_limit,
    expected_hamiltonian_cycles,
    lemma1_probability,
    matching_deficiency,
    prob_all_degrees,
    prob_cycle_exact,
    prob_no_zero_out_degree,
    threshold_probability,
)
from theory.simulation import simulate_cycle, simulate_path, simulate_relay_path
from theory.statements.statement import Found, statement


@statement("expectation is not existence", "proof", "theorem", "n = 100, exact degree law", prob_no_zero_out_degree)
def _expectation() -> Found:
    """Claim: at p = (e/n) n^(1/n) at least one Hamiltonian cycle is expected, so there is one.

    Verdict: the expected number grows like √(2πn), the probability that one exists tends to 0.
    """
    cycles, chance = expected_hamiltonian_cycles(100, "lemma1"), prob_no_zero_out_degree(100, "lemma1")
    holds = abs(cycles - 25.087) < 0.01 and abs(chance - 0.0027268) < 1e-6
    return holds, f"n = 100: {cycles:.1f} cycles expected; with probability {1 - chance:.4f} some token reaches nobody"


@statement("all degrees", "repair", "theorem", "n = 16, 32, 100; n = 4 against enumeration", prob_all_degrees)
def _degrees() -> Found:
    """Claim: (needed) the exact probability that every token has an arc in and an arc out.

    Verdict: at p_L it falls from .355 (n = 16) to .0612 (32) and 1.9e-5 (100).
    """
    found = [prob_all_degrees(n, "lemma1") for n in (16, 32, 100)]
    tiny = prob_all_degrees(4, 0.6), prob_cycle_exact(4, 0.6)
    holds = abs(found[0] - 0.355) < 5e-4 and abs(found[1] - 0.0612) < 5e-5 and abs(found[2] - 1.9e-5) < 5e-7
    holds &= abs(tiny[0] - 0.631765536768) < 1e-9 and abs(tiny[1] - 0.5052872171520003) < 1e-9
    return holds, f"{found[0]:.3f}, {found[1]:.4f}, {found[2]:.1e}; n = 4, p = .6: {tiny[0]:.4f} ≥ {tiny[1]:.4f}"


@statement(
    "cycles at Lemma 1's probability",
    "conclusion",
    "simulated",
    "n = 16 and 50, 200 graphs each, seed 0",
    simulate_cycle,
)
def _cycles() -> Found:
    """Claim: p_L makes every block Hamiltonian.

    Verdict: with 16 tokens a block is Hamiltonian in about 17 % of draws, with 50 never seen.
    """
    small, large = simulate_cycle(16, "lemma1", 200, seed=0), simulate_cycle(50, "lemma1", 200, seed=0)
    low, high = small.interval(1 - 1e-6)
    text = f"{small.hits} of {small.n_draws} and {large.hits} of {large.n_draws} graphs"
    return low < 0.17 < high and large.interval(1 - 1e-6)[1] < 0.1, text


@statement("a probability above 1", "slip", "exhaustive", "n ≤ 1000; it falls in n", lemma1_probability)
def _above_one() -> Found:
    """Claim: p = (e/n) n^(1/n) is a probability.

    Verdict: it exceeds 1 for n ≤ 3.
    """
    above = [n for n in range(1, 1001) if lemma1_probability(n) > 1]
    shown = ", ".join(f"{lemma1_probability(n):.3f}" for n in above)
    return above == [1, 2, 3], f"p_L(1), p_L(2), p_L(3) = {shown}"


@statement("n^(1/n) misprinted", "slip", "instance", "n = 10⁴", lemma1_probability)
def _misprint() -> Found:
    """Claim: p = (e/n) n^(1/2), and (n/e)^r for (n/e)^n, in one copy of the text.

    Verdict: it is n^(1/n) and (n/e)^n; with 1/2 the edges would be O(n^1.5), not O(n).
    """
    n = 10**4
    right, printed = n * lemma1_probability(n), e * sqrt(n)
    return right < 3.921 and printed > 100, f"mean degree {right:.2f} against {printed:.0f}"


@statement(
    "the directed threshold", "repair", "simulated", "n = 100, c = 1 and 4, 60 graphs each, seed 0", directed_limit
)
def _threshold() -> Found:
    """Claim: (needed) where directed random graphs become Hamiltonian.

    Verdict: at (ln n + c)/n; P(cycle) → exp(−2e^(−c)).
    """
    return _against_limits(simulate_cycle, {c: directed_limit(c).cycle for c in (1, 4)})


@statement("the path's limit", "repair", "heuristic", "n = 100, c = 0 and 1, 60 graphs each, seed 0", directed_limit)
def _path_limit() -> Found:
    """Claim: (needed) the same for a Hamiltonian path.

    Verdict: (1 + L)² exp(−2L), L = e^(−c), if sources and sinks are the only obstacles.
    """
    return _against_limits(simulate_path, {c: directed_limit(c).path for c in (0, 1)})


@statement(
    "relays to the rescue", "repair", "simulated", "n/k = 64/8 and 64/2, 60 graphs each, seed 0", simulate_relay_path
)
def _rescue() -> Found:
    """Claim: (needed) how many relays the path takes at p_L.

    Verdict: blocks of up to about 10 tokens, one relay each; with k = o(n) the path vanishes.
    """
    many, few = (simulate_relay_path(64, k, "lemma1", 60, seed=0) for k in (8, 2))
    share = matching_deficiency(e)
    holds = many.interval(1 - 1e-6)[1] > 0.99 and few.interval(1 - 1e-6)[0] < 0.04 and few.share < 0.3
    text = f"8 relays: {many.hits} of 60, 2 relays: {few.hits} of 60; in the limit {share:.4f}·n relays are needed"
    return holds and many.share > 0.9 and abs(share - 0.1036) < 1e-4, text


def _against_limits(simulate: Callable[..., Estimate], limits: dict[int, float]) -> Found:
    """Shares among 60 graphs of 100 tokens at (ln n + c)/n against the limit of each c."""
    found, holds = [], True
    for c, limit in limits.items():
        seen = simulate(100, threshold_probability(100, c), 60, seed=0)
        low, high = seen.interval(1 - 1e-6)
        holds &= low < limit < high
        found.append(f"c = {c}: {seen.share:.2f}, limit {limit:.2f}")
    return holds, "; ".join(found)
