"""Tests algebraic properties of the gradient rules."""

import math

import pytest
import torch

from sbmt.experiments.studies.gradient_estimators import measure_estimators
from tests.gradients_by_hand import PROBABILITY, convex, inputs, linear, wavy


def test_reinforce_is_unbiased_and_exploration_biases_it_as_much_as_the_exact_gradient():
    graph = inputs(seed=5)
    plain = measure_estimators(*graph, PROBABILITY, wavy)
    assert plain["reinforce"].relative_bias < 1e-12 and plain["exact"].relative_bias < 1e-12
    explored = measure_estimators(*graph, PROBABILITY, wavy, exploration=0.02)
    torch.testing.assert_close(explored["reinforce"].mean, explored["exact"].mean, rtol=0, atol=1e-12)
    torch.testing.assert_close(explored["score"].exact, plain["score"].exact, rtol=0, atol=1e-15)
    assert explored["exact"].relative_bias > 1e-3


def test_removal_is_unbiased_for_linear_losses_and_never_below_for_convex_ones():
    graph = inputs(seed=6)
    reports = measure_estimators(*graph, PROBABILITY, linear)
    assert reports["removal/q"].relative_bias < 1e-12
    torch.testing.assert_close(reports["removal"].mean, PROBABILITY * reports["removal"].exact, rtol=0, atol=1e-12)
    assert reports["weight/q"].relative_bias > 0.1
    report = measure_estimators(*graph, PROBABILITY, convex)["removal/q"]
    bias = report.mean - report.exact
    assert (bias >= -1e-12).all() and bias.max() > 0.1


@pytest.mark.parametrize("exploration", [0.0, 0.5])
def test_certain_edges_learn_nothing_and_nearly_certain_ones_stay_finite(exploration):
    probability = torch.tensor([[1.0, 0.0, 1e-12], [0.999, 1.0, 0.5]], dtype=torch.float64)
    is_certain = (probability == 0) | (probability == 1)
    for report in measure_estimators(*inputs(), probability, wavy, exploration=exploration).values():
        for cells in (report.exact, report.mean, report.variance):
            assert (cells[is_certain] == 0).all() and cells.isfinite().all()
        assert math.isfinite(report.draw_cosine) and report.exact[~is_certain].abs().min() > 0
