"""Formulas against enumeration of all small graphs, second derivations, and published values."""

import math
from fractions import Fraction
from itertools import combinations, pairwise, permutations

import mpmath
import numpy as np
import pytest
from scipy.sparse import random_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from theory import random_graphs as graphs


def all_graphs(n):
    """Every directed graph on n tokens as a set of arcs, with its probability at arc probability p."""
    arcs = list(permutations(range(n), 2))
    for many in range(len(arcs) + 1):
        for chosen in combinations(arcs, many):
            yield set(chosen), lambda p, many=many: p**many * (1 - p) ** (len(arcs) - many)


def probability(n, p, event):
    return sum(weight(p) for arcs, weight in all_graphs(n) if event(arcs))


def closed(order):
    return [*pairwise(order), (order[-1], order[0])]


def count_cycles(n, arcs):
    return sum(order[0] == 0 and arcs.issuperset(closed(order)) for order in permutations(range(n)))


def min_degree_by_two_sets(n, q):
    """Inclusion and exclusion over a set without arcs out, a set without arcs in, and their intersection."""
    total = Fraction(0)
    for out_only in range(n + 1):
        for in_only in range(n + 1 - out_only):
            for both in range(n + 1 - out_only - in_only):
                no_out, no_in = out_only + both, in_only + both
                ways = math.comb(n, out_only) * math.comb(n - out_only, in_only)
                ways *= math.comb(n - out_only - in_only, both)
                missing = (no_out + no_in) * (n - 1) - (no_out * no_in - both)
                total += (-1) ** (no_out + no_in) * ways * q**missing
    return total


def test_lemma_1_promises_more_than_a_probability_up_to_three_tokens():
    values = [graphs.lemma1_probability(n) for n in range(1, 400)]
    assert all(after < before for before, after in pairwise(values))
    assert [graphs.arc_probability(n, "lemma1") for n in range(1, 400)] == [1, 1, 1, *values[3:]]
    assert max(n * p for n, p in enumerate(values, start=1)) == pytest.approx(3.921, abs=1e-3)


@pytest.mark.parametrize("n, p", [(1, 0.5), (2, 0.3), (4, 0.6)])
def test_expected_cycles_are_what_enumeration_counts(n, p):
    expected = sum(weight(p) * count_cycles(n, arcs) for arcs, weight in all_graphs(n)) if n > 1 else 0
    assert graphs.expected_hamiltonian_cycles(n, p) == pytest.approx(expected, abs=1e-12)
    assert graphs.expected_hamiltonian_cycles(400, 1) == math.inf  # beyond floats


@pytest.mark.parametrize("n, p", [(1, 0.6), (2, 0), (3, 1), (4, 0.05), (4, 0.6)])
def test_degree_probabilities_are_what_enumeration_gives(n, p):
    def has_out(arcs):
        return len({start for start, _ in arcs}) == n

    def has_both(arcs):
        return has_out(arcs) and len({end for _, end in arcs}) == n

    assert graphs.prob_no_zero_out_degree(n, p) == pytest.approx(probability(n, p, has_out), abs=1e-13)
    assert graphs.prob_all_degrees(n, p) == pytest.approx(probability(n, p, has_both), abs=1e-13)


@pytest.mark.parametrize("n, p", [(2, Fraction(3, 8)), (13, Fraction(1, 64)), (13, Fraction(15, 16))])
def test_degrees_by_another_inclusion_and_exclusion_in_rationals(n, p):
    assert graphs.prob_all_degrees(n, float(p)) == pytest.approx(float(min_degree_by_two_sets(n, 1 - p)), rel=1e-12)


def test_cancellation_does_not_reach_the_result():
    """At 1e-6 arcs per pair the terms are of order 1, and what is left of them lies seventy digits below."""
    small = graphs.prob_all_degrees(14, 1e-6)
    assert 0 < small < 1e-70
    assert small == pytest.approx(float(min_degree_by_two_sets(14, 1 - Fraction(1e-6))), rel=1e-9)
    assert graphs.prob_all_degrees(60, 1e-9) == 0  # below the least float


def test_exact_probabilities_of_four_tokens_are_those_of_naive_search():
    cycle = probability(4, 0.6, lambda arcs: count_cycles(4, arcs) > 0)
    assert graphs.prob_cycle_exact(4, 0.6) == pytest.approx(cycle, abs=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("p", [0, 0.5, 1, "lemma1"])
def test_existence_is_bounded_by_degrees_and_expectation(n, p):
    cycle = graphs.prob_cycle_exact(n, p)
    assert cycle <= graphs.prob_all_degrees(n, p) + 1e-12
    assert graphs.prob_all_degrees(n, p) <= graphs.prob_no_zero_out_degree(n, p) + 1e-12
    assert cycle <= graphs.expected_hamiltonian_cycles(n, p) + 1e-12
    assert (cycle > 1 - 1e-12) == (n > 1 and (p == 1 or (p == "lemma1" and n <= 3)))


@pytest.mark.parametrize("n, p", [(5, 1e-12), (5, 1e-17), (9, 5e-324), (4, 0.6), (10**9, 4e-8), (3, 1 - 1e-16)])
def test_no_digits_are_lost_where_arcs_or_tokens_without_them_are_rare(n, p):
    with mpmath.workdps(400):
        exact = (1 - (1 - mpmath.mpf(p)) ** (n - 1)) ** n
    assert graphs.prob_no_zero_out_degree(n, p) == pytest.approx(float(exact), rel=1e-13, abs=0)


def test_limits_belong_to_the_threshold():
    """The law of the obstacles settles at (ln n + c)/n, and not at the undirected threshold with its ln ln n."""
    for c in (-1, 0, 2):
        limit = graphs.directed_limit(c)
        assert limit.cycle == pytest.approx(math.exp(-2 * math.exp(-c)), rel=1e-12)
        assert limit.path == pytest.approx(limit.cycle * (1 + math.exp(-c)) ** 2, rel=1e-12)
        errors = [
            abs(graphs.prob_all_degrees(n, graphs.threshold_probability(n, c)) - limit.cycle) for n in (50, 200, 800)
        ]
        assert errors[2] < errors[1] < errors[0] and errors[2] < 0.01
    with_log_log = graphs.threshold_probability(800, math.log(math.log(800)))
    assert graphs.prob_all_degrees(800, with_log_log) > graphs.directed_limit(0).cycle + 0.5
    assert graphs.directed_limit(-1000) == (0, 0) and graphs.directed_limit(1000) == (1, 1)
    assert graphs.threshold_probability(10, -5) == 0 and graphs.threshold_probability(10, 50) == 1


@pytest.mark.parametrize("mean_degree", [0.5, math.e, 3.5])
def test_matching_deficiency_is_what_matchings_of_large_graphs_leave(mean_degree):
    n = 20_000
    sample = random_array((n, n), density=mean_degree / n, format="csr", rng=np.random.default_rng(7))
    deficit = (maximum_bipartite_matching(sample, perm_type="column") < 0).mean()
    assert deficit == pytest.approx(graphs.matching_deficiency(mean_degree), abs=0.006)


def test_matching_deficiency_is_continuous_where_its_root_splits():
    around = [graphs.matching_deficiency(math.e + step) for step in (-1e-7, 0, 1e-13, 1e-7)]
    assert max(around) - min(around) < 1e-6
    assert around[1] == pytest.approx(3 / math.e - 1, abs=1e-12)
    assert graphs.matching_deficiency(0) == 1
    assert graphs.matching_deficiency(40) == pytest.approx(math.exp(-40), abs=1e-14)
