"""Estimates against exact probabilities and theorems, and the intervals and seeds that they promise."""

import math
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from sbmt.samplers import sample_edges
from tests.statistics import binomial_p_values
from theory import simulation
from theory.conditions import min_layers
from theory.path_cover import Undecided
from theory.patterns import blocks, three_patterns
from theory.random_graphs import prob_cycle_exact
from theory.realisability import realise, saturated_heads
from theory.simulation import Estimate, certify_draws


def has_path(pattern):
    """By trying all orders; arcs go from key to query."""
    return any(all(pattern[b, a] for a, b in pairwise(order)) for order in permutations(range(len(pattern))))


@pytest.mark.statistical(share=0.001)
def test_estimates_have_the_exact_probabilities(judge):
    n_draws = 150
    cases = [
        (simulation.simulate_cycle(4, 0.6, n_draws), prob_cycle_exact(4, 0.6)),
        (simulation.simulate_block_cycles(12, 3, 0.8, n_draws, seed=2), prob_cycle_exact(4, 0.8) ** 3),
        (simulation.simulate_block_cycles(7, 3, 0.7, n_draws, seed=3), prob_cycle_exact(3, 0.7) * 0.49**2),
    ]
    assert all(found.n_undecided == 0 for found, _ in cases)
    judge(*(binomial_p_values(found.hits, n_draws, exact) for found, exact in cases))


@pytest.mark.parametrize("n, k, p", [(7, 2, 0.3), (7, 1, 0.3), (6, 3, 0.0)])
def test_relay_draws_are_decided_as_all_orders_decide_them(n, k, p):
    relays = three_patterns(n, k)
    naive = []
    for draw in range(30):
        arcs = simulation.draw_block_arcs(n, k, p, np.random.default_rng([5, draw]))
        naive.append(has_path(arcs.toarray().T | relays[1] | relays[2]))
    assert simulation.simulate_relay_path(n, k, p, 30, seed=5) == Estimate(sum(naive), 30)
    assert 0 < sum(naive) < 30 or p == 0


def test_block_arcs_stay_in_their_blocks_without_loops():
    arcs = simulation.draw_block_arcs(11, 3, 1.0, np.random.default_rng(0)).toarray()
    block = blocks(11, 3)
    assert np.array_equal(arcs, (block[:, None] == block) & ~np.eye(11, dtype=bool))
    pattern = simulation.draw_graph(9, 0.3, np.random.default_rng(1))
    arcs = simulation.draw_block_arcs(9, 1, 0.3, np.random.default_rng(1)).toarray()
    assert np.array_equal(arcs, pattern.T) and not np.array_equal(arcs, pattern)  # from the key to the query


def test_prediction_for_all_blocks_at_the_budget():
    cases = [((120, 4), 0.94), ((384, 8), 0.24), ((576, 8), 0.92)]
    for (n, k), value in cases:
        assert simulation.predict_block_cycles(n, k) == pytest.approx(value, abs=0.006)
    for n in (1, 2, 7):  # blocks of one token need no cycle
        assert simulation.predict_block_cycles(n, n) == simulation.simulate_block_cycles(n, n, 1 / n, 3).share == 1


def test_draws_are_reproducible_and_more_of_them_begin_with_the_first():
    seen = []

    def event(rng):
        seen.append(rng.random())
        return seen[-1] < 0.5

    few, many = simulation.estimate(event, 10, seed=3), simulation.estimate(event, 25, seed=3)
    assert seen[:10] == seen[10:20] and len(set(seen[10:])) == 25
    assert few.hits == sum(x < 0.5 for x in seen[:10]) and many.hits == sum(x < 0.5 for x in seen[10:])
    simulation.estimate(event, 10, seed=4)
    assert seen[-10:] != seen[:10]


def test_undecided_draws_are_neither_hits_nor_misses():
    def event(rng):
        value = rng.random()
        if value < 0.3:
            raise Undecided("in doubt")
        return value < 0.6

    found = simulation.estimate(event, 200)
    assert found.n_undecided > 30 and found.hits > 30
    lower, upper = found.interval()
    assert lower == Estimate(found.hits, 200).interval()[0]
    assert upper == Estimate(found.hits + found.n_undecided, 200).interval()[1]
    assert math.isnan(found.share) and Estimate(1, 4).share == 0.25
    assert Estimate(0, 3, 3).interval() == (0, 1)


def draw_patterns(heads, n_draws, *, sampler="exact", seed=0):
    """One pattern per block model and draw, with self-loops, as :func:`certify_draws` takes them."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n_draws):
        yield [sample_edges(head, sampler, generator=generator).with_self_loops() for head in heads]


def counts(heads, n_draws, **options):
    """In how many draws each condition was proved."""
    report = certify_draws(draw_patterns(heads, n_draws, **options))
    assert all(condition.n_undecided == 0 for condition in report.conditions)
    return [condition.hits for condition in report.conditions]


def layers(heads, n_draws, order=None, **options):
    return [min_layers(patterns, order) for patterns in draw_patterns(heads, n_draws, **options)]


@pytest.mark.parametrize("relays", ["last", "per_block"])
def test_k_plus_two_saturated_heads_meet_all_conditions(relays):
    heads = saturated_heads(12, 3, relays=relays)
    assert counts(heads, 5) == [5, 5, 5]
    assert layers(heads, 5) == [5] * 5  # blocks, gather, broadcast


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
def test_under_the_poisson_link_three_heads_meet_all_conditions(sampler):
    """The paper's own figure, which its own link cannot draw; and gathering has to precede broadcasting here too."""
    heads = [realise(name, 16, 4, "poisson") for name in ("A1", "A2", "A3")]
    assert counts(heads, 3, sampler=sampler) == [3, 3, 3]
    assert layers(heads, 3, sampler=sampler) == [5] * 3
    assert layers(heads, 3, (3, 2, 1), sampler=sampler) == [2] * 3


def test_blocks_within_the_budget_need_more_relays_than_there_are():
    """At 1/k = 1/8 the 56 non-relays fall into far more than 9 paths; without the budget they are 7."""
    for link, n_paths in (("bilinear", 0), ("poisson", 4)):
        assert counts([realise(name, 64, 8, link) for name in ("A1", "A2", "A3")], 4) == [4, n_paths, 4]
