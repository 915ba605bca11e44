"""Compares reweighted attention with the library, with naive sums, and with enumeration of all masks."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import sbmt
from sbmt import BlockModel, EdgeList
from sbmt.block_model.model import SMALLEST_PROBABILITY, probability, reweighting_bias
from theory import reweighting

RNG = np.random.default_rng(4)
SCORES, VALUES = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))
RATES = np.array([[math.inf, 0.2, 0.9, 2.0], [0.4, math.inf, 0.1, 0.01], [1.5, 0.3, math.inf, 0.7]])


PROBABILITIES = 1 - np.exp(-RATES)


def masks(p):
    """Yields every possible mask of one query, with its probability."""
    for bits in product((0.0, 1.0), repeat=4):
        mask = np.array(bits)
        if chance := np.where(mask > 0, p, 1 - p).prod():
            yield mask, chance


def test_drawn_outputs_are_those_of_the_library_for_the_same_edges():
    drawn = np.random.default_rng(0).random((3, 4)) < PROBABILITIES
    outputs = reweighting.drawn_outputs(SCORES, VALUES, RATES, 1)[0]
    edges = EdgeList.from_dense(torch.from_numpy(drawn)[None, None])
    bias = reweighting_bias(probability("poisson", torch.from_numpy(RATES[drawn])))
    query, key, value = (torch.from_numpy(part)[None, None] for part in (2 * SCORES, np.eye(4), VALUES))
    expected = sbmt.edge_attention(query, key, value, edges, bias=bias)  # scores are halved: 1/√4
    np.testing.assert_allclose(outputs, expected[0, 0].numpy(), rtol=1e-12)


@pytest.mark.parametrize("smallest", [0.0, 0.15, 1.0])
def test_the_limit_has_the_mean_numerator_and_denominator(smallest):
    limit = reweighting.limit_output(SCORES, VALUES, RATES, smallest)
    for i, p in enumerate(PROBABILITIES):
        weights = sum(chance * mask * np.exp(SCORES[i]) / np.maximum(p, smallest) for mask, chance in masks(p))
        np.testing.assert_allclose(limit[i], weights @ VALUES / weights.sum(), rtol=1e-12)


def test_the_predicted_error_is_the_delta_method_s():
    """The square of the error is the variance of N̂ - o D̂ over D², for unbiased estimates N̂ and D̂ of o D and D."""
    total = 0.0
    for i, p in enumerate(PROBABILITIES):
        weights = np.exp(SCORES[i]) / np.exp(SCORES[i]).sum()
        for mask, chance in masks(p):
            estimate = mask * weights / p
            total += chance * ((estimate @ VALUES - weights @ VALUES * estimate.sum()) ** 2).sum()
    assert reweighting.predicted_error(SCORES, VALUES, RATES) == pytest.approx(math.sqrt(total / 3), rel=1e-12)


def test_the_bound_holds_for_every_query_and_says_nothing_of_capped_ones():
    full = reweighting.limit_output(SCORES, VALUES, RATES, 0.0)
    largest = float(np.linalg.norm(VALUES, axis=1).max())
    bound = reweighting.distance_bound(RATES, largest)
    np.testing.assert_allclose(bound, 4 * largest * (1 / PROBABILITIES - 1).sum(1), rtol=1e-12)
    for i, p in enumerate(PROBABILITIES):
        distance = 0.0
        for mask, chance in masks(p):
            weights = mask * np.exp(SCORES[i]) / np.maximum(p, SMALLEST_PROBABILITY)
            distance += chance * np.linalg.norm(weights @ VALUES / weights.sum() - full[i])
        assert 0 < distance <= bound[i]
    assert bound[1] > 2 * largest  # it contains a capped key


def asymmetric_model(scale=1.0):
    generator = torch.Generator().manual_seed(2)
    memberships = (torch.rand(1, 1, 6, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    block_matrix = scale * torch.tensor([[[0.9, 0.1], [0.4, 0.2]]], dtype=torch.float64)
    query, key = memberships
    return BlockModel(query, block_matrix, key, link="poisson")


@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_at_the_best_overall_rate_the_likelihood_is_flat(exploration):
    attention = torch.rand(6, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rates = reweighting.fitted_rates(asymmetric_model(), attention, 5.0, exploration)
    wanted = 5.0 * (attention.numpy() * rates / (rates + exploration)).sum()
    assert rates.sum() == pytest.approx(wanted, rel=1e-6)
    from_elsewhere = reweighting.fitted_rates(asymmetric_model(50.0), attention, 5.0, exploration)
    np.testing.assert_allclose(from_elsewhere, rates, rtol=1e-6)
