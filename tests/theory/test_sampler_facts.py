"""Facts about the sampler against naive enumeration and the library's own draws."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from sbmt.block_model.model import BlockModel
from theory import sampler_facts as facts
from theory.patterns import blocks, relay_tokens, three_patterns
from theory.random_graphs import arc_probability

RNG = np.random.default_rng(3)
QUERY, BLOCK, KEY = (
    RNG.random((4, 3)),
    np.array([[0.0, 0.5, 0.1], [0.3, 0.0, 0.0], [0.0, 0.9, 0.2]]),
    RNG.random((5, 3)),
)


def test_rates_are_those_of_algorithm_1_step_by_step():
    """B̄ = D_Y B D_Z spreads over Ȳ and Z̄; with the inverses, as printed, it does not add up."""
    rates = facts.fastrg_rates(QUERY, BLOCK, KEY)
    columns_y, columns_z = QUERY.sum(0), KEY.sum(0)
    spread = np.diag(columns_y) @ BLOCK @ np.diag(columns_z)
    edge = (QUERY / columns_y) @ spread @ (KEY / columns_z).T
    np.testing.assert_allclose(rates.edge, edge, rtol=1e-12)
    assert rates.total == pytest.approx(spread.sum(), rel=1e-12)
    printed = np.diag(1 / columns_y) @ BLOCK @ np.diag(1 / columns_z)
    assert rates.printed_total == pytest.approx(printed.sum(), rel=1e-12)
    assert rates.distinct == pytest.approx((1 - np.exp(-edge)).sum(), rel=1e-12) and rates.distinct < rates.total


def test_the_printed_rate_of_an_empty_cluster_is_infinite():
    empty = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert facts.fastrg_rates(empty, np.eye(2), empty).printed_total == math.inf
    assert facts.fastrg_rates(empty, np.diag([1.0, 0.0]), empty).printed_total == 0.25


def test_greatest_density_is_what_a_full_model_has():
    ones = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    rate = BlockModel(ones, torch.ones(1, 1, 1, dtype=torch.float64), ones, link="poisson")
    for delta in (0.0, 0.01, 0.3):
        assert facts.fastrg_max_density(delta) == pytest.approx(float(rate.expected_mask(delta).mean()), rel=1e-12)
    assert facts.fastrg_max_density() == pytest.approx(0.632, abs=1e-3)


@pytest.mark.parametrize("k, q", [(1, 0.3), (2, 0.7), (3, 0.5)])
def test_two_hops_miss_as_enumeration_of_relay_arcs_says(k, q):
    missed = 0.0
    for gathered in product((0, 1), repeat=k):
        for broadcast in product((0, 1), repeat=k):
            ones = sum(gathered) + sum(broadcast)
            is_missed = not any(a and b for a, b in zip(gathered, broadcast, strict=True))
            missed += is_missed * q**ones * (1 - q) ** (2 * k - ones)
    assert facts.two_hop_miss(k, q) == pytest.approx(missed, rel=1e-12)
    assert facts.two_hop_miss(k) == pytest.approx((1 - (1 - math.exp(-1)) ** 2) ** k, rel=1e-12)
    assert facts.two_hop_miss(k, 1) == 0 and facts.two_hop_miss(k, 0) == 1


@pytest.mark.parametrize("n, k", [(10, 4), (7, 1), (5, 5)])
@pytest.mark.parametrize(
    "p, relays, self_loops", [(1, "last", True), (0.3, "last", False), ("lemma1", "per_block", True)]
)
def test_expected_entries_are_sums_over_all_pairs(n, k, p, relays, self_loops):
    sizes = np.bincount(blocks(n, k))
    block, _, _ = three_patterns(n, k, relays)
    own = np.array([arc_probability(int(size), p) for size in sizes])[blocks(n, k)]
    a1 = block * own[:, None]
    star = np.zeros((n, n))
    star[:, relay_tokens(n, k, relays)] = 1.0
    probabilities = {"A1": a1, "A2": star, "A3": star.T, "union": np.maximum(a1, np.maximum(star, star.T))}
    expected = {}
    for name, probability in probabilities.items():
        np.fill_diagonal(probability, float(self_loops))
        expected[name] = probability.sum()
    expected["sum"] = expected["A1"] + expected["A2"] + expected["A3"]
    found = facts.expected_entries(n, k, p, self_loops=self_loops, relays=relays)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)
    if p == 1 and self_loops and relays == "last":
        assert found["sum"] == facts.support_entries(n, k)
