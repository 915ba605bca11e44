"""Compares formulas with enumeration of small graphs and other derivations, and estimates with exact values."""

import math
from itertools import combinations, pairwise, permutations

import numpy as np
import pytest

from tests.statistics import binomial_p_values
from tests.theory.graphs import has_path
from theory import random_graphs as graphs
from theory import simulation
from theory.path_cover import Undecided
from theory.patterns import blocks, three_patterns
from theory.simulation import Estimate


def probability(n, p, event):
    """Returns the probability of an event on the arcs, by enumeration of all directed graphs."""
    arcs = list(permutations(range(n), 2))
    weights = (p**many * (1 - p) ** (len(arcs) - many) for many in range(len(arcs) + 1))
    return sum(
        weight * sum(event(set(chosen)) for chosen in combinations(arcs, many)) for many, weight in enumerate(weights)
    )


def count_cycles(n, arcs):
    return sum(arcs.issuperset(pairwise((0, *rest, 0))) for rest in permutations(range(1, n))) if n > 1 else 0


@pytest.mark.parametrize("n, p", [(1, 0.6), (2, 0), (2, 0.3), (3, 1), (4, 0.05), (4, 0.6)])
def test_formulas_give_what_enumeration_gives(n, p):
    def has_out(arcs):
        return len({start for start, _ in arcs}) == n

    def has_both(arcs):
        return has_out(arcs) and len({end for _, end in arcs}) == n

    expected = {
        graphs.expected_hamiltonian_cycles: lambda arcs: count_cycles(n, arcs),
        graphs.prob_cycle_exact: lambda arcs: count_cycles(n, arcs) > 0,
        graphs.prob_no_zero_out_degree: has_out,
        graphs.prob_all_degrees: has_both,
    }
    for formula, event in expected.items():
        assert formula(n, p) == pytest.approx(probability(n, p, event), abs=1e-12)
    assert graphs.expected_hamiltonian_cycles(400, 1) == math.inf  # beyond the range of floats


def test_rare_degrees_are_those_of_the_fewest_arcs():
    """At 1e-20 arcs per pair, graphs with more than n arcs are negligible; one per derangement has n."""
    n, p = 14, 1e-20
    n_derangements = round(math.factorial(n) / math.e)
    assert graphs.prob_all_degrees(n, p) == pytest.approx(n_derangements * p**n, rel=1e-9, abs=0)
    rare = 1.011818563968709e-220  # the same sum with 400 digits, of which 64 cancel
    assert graphs.prob_all_degrees(150, 5e-4) == pytest.approx(rare, rel=1e-9, abs=0)
    assert graphs.prob_all_degrees(60, 1e-9) == 0  # below the smallest float


def test_limits_belong_to_the_threshold():
    """The law of the obstacles converges at (ln n + c)/n, not at the undirected threshold with ln ln n."""
    for c in (-1, 0, 2):
        limit = graphs.directed_limit(c)
        assert limit.cycle == pytest.approx(math.exp(-2 * math.exp(-c)), rel=1e-12)
        assert limit.path == pytest.approx(limit.cycle * (1 + math.exp(-c)) ** 2, rel=1e-12)
        errors = [graphs.prob_all_degrees(n, graphs.threshold_probability(n, c)) - limit.cycle for n in (50, 800)]
        assert abs(errors[1]) < abs(errors[0]) and abs(errors[1]) < 0.01
    with_log_log = graphs.threshold_probability(800, math.log(math.log(800)))
    assert graphs.prob_all_degrees(800, with_log_log) > graphs.directed_limit(0).cycle + 0.5
    assert graphs.directed_limit(-1000) == (0, 0) and graphs.directed_limit(1000) == (1, 1)
    assert graphs.threshold_probability(10, -5) == 0 and graphs.threshold_probability(10, 50) == 1


def test_matching_deficiency_is_continuous_where_its_root_splits():
    around = [graphs.matching_deficiency(math.e + step) for step in (-1e-7, 0, 1e-13, 1e-7)]
    assert max(around) - min(around) < 1e-6 and around[1] == pytest.approx(3 / math.e - 1, abs=1e-12)


@pytest.mark.statistical(share=0.001)
def test_estimates_have_the_exact_probabilities(judge):
    n_draws = 150
    cases = [
        (simulation.simulate_cycle(4, 0.6, n_draws), graphs.prob_cycle_exact(4, 0.6)),
        (simulation.simulate_path(2, 0.3, n_draws, seed=1), 1 - 0.7**2),
        (simulation.simulate_block_cycles(12, 3, 0.8, n_draws, seed=2), graphs.prob_cycle_exact(4, 0.8) ** 3),
        (simulation.simulate_block_cycles(7, 3, 0.7, n_draws, seed=3), graphs.prob_cycle_exact(3, 0.7) * 0.49**2),
    ]
    assert all(found.n_undecided == 0 for found, _ in cases)
    judge(*(binomial_p_values(found.hits, n_draws, exact) for found, exact in cases))


@pytest.mark.parametrize("n, k, p", [(7, 2, 0.3), (7, 1, 0.3), (6, 3, 0.0)])
def test_relay_draws_are_decided_as_all_sets_decide_them(n, k, p):
    relays, naive = three_patterns(n, k), []
    for draw in range(30):
        arcs = simulation.draw_block_arcs(n, k, p, np.random.default_rng([5, draw]))
        naive.append(has_path(arcs.toarray().T | relays[1] | relays[2]))
    assert simulation.simulate_relay_path(n, k, p, 30, seed=5) == Estimate(sum(naive), 30)
    assert 0 < sum(naive) < 30 or p == 0


def test_block_arcs_stay_in_their_blocks_without_loops_and_start_at_keys():
    arcs = simulation.draw_block_arcs(11, 3, 1.0, np.random.default_rng(0)).toarray()
    assert np.array_equal(arcs, np.equal.outer(blocks(11, 3), blocks(11, 3)) & ~np.eye(11, dtype=bool))
    pattern = simulation.draw_graph(9, 0.3, np.random.default_rng(1))
    arcs = simulation.draw_block_arcs(9, 1, 0.3, np.random.default_rng(1)).toarray()
    assert np.array_equal(arcs, pattern.T) and not np.array_equal(arcs, pattern)


def test_more_draws_begin_with_the_first_and_undecided_ones_are_neither_hits_nor_misses():
    seen = []

    def event(rng):
        seen.append(rng.random())
        if seen[-1] < 0.3:
            raise Undecided("in doubt")
        return seen[-1] < 0.6

    simulation.estimate(event, 10)
    found = simulation.estimate(event, 200)
    assert seen[:10] == seen[10:20] and len(set(seen)) == 200
    assert found == Estimate(sum(0.3 <= x < 0.6 for x in seen[10:]), 200, sum(x < 0.3 for x in seen[10:]))
    lower, upper = found.interval()
    assert lower == Estimate(found.hits, 200).interval()[0]
    assert upper == Estimate(found.hits + found.n_undecided, 200).interval()[1]
    assert math.isnan(found.share) and Estimate(1, 4).share == 0.25 and Estimate(0, 3, 3).interval() == (0, 1)
