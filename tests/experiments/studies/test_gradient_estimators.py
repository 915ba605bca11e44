"""Compares the measured estimators with plain loops over masks, and with the library's own draws."""

import pytest
import torch

from sbmt import BlockModel, sbm_attention
from sbmt.experiments.studies.gradient_estimators import ESTIMATORS, measure_estimators
from tests.gradients_by_hand import (
    PROBABILITY,
    RANDOM,
    all_masks,
    convex,
    expected_loss,
    guesses_by_hand,
    inputs,
    linear,
    moments_by_hand,
    wavy,
)
from tests.layers.inputs import seeded


@pytest.mark.parametrize(("loss", "exploration"), [(wavy, 0.0), (linear, 0.03), (convex, 0.2)])
def test_the_exact_gradient_is_a_difference_quotient(loss, exploration):
    """E[L] is linear in each probability, so a difference quotient has only rounding errors."""
    graph = inputs()
    reports = measure_estimators(*graph, PROBABILITY, loss, exploration=exploration)
    inclusion = torch.where(RANDOM, (PROBABILITY + exploration).clamp(max=1), PROBABILITY)
    for law, found in ((PROBABILITY, reports["score"].exact), (inclusion, reports["exact"].mean)):
        expected = torch.zeros_like(law)
        for row, column in RANDOM.nonzero().tolist():
            low, high = law.clone(), law.clone()
            low[row, column], high[row, column] = 0.4, 0.6
            rise = expected_loss(*graph, high, loss) - expected_loss(*graph, low, loss)
            expected[row, column] = rise / 0.2
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert reports["exact"].variance.abs().max() < 1e-20


@pytest.mark.parametrize(("loss", "exploration"), [(wavy, 0.03), (linear, 0.0)])
def test_means_and_variances_are_those_of_a_loop_over_masks(loss, exploration):
    graph = inputs(seed=1)
    inclusion = torch.where(RANDOM, PROBABILITY + exploration, PROBABILITY)
    reports = measure_estimators(*graph, PROBABILITY, loss, exploration=exploration)
    first, second = moments_by_hand(*graph, PROBABILITY, loss, inclusion)
    assert tuple(reports) == ESTIMATORS
    for name in first:
        torch.testing.assert_close(reports[name].mean, first[name], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(reports[name].variance, second[name], rtol=1e-9, atol=1e-9)


def test_a_single_draw_has_the_cosine_of_a_loop_over_masks():
    graph = inputs(seed=2)
    report = measure_estimators(*graph, PROBABILITY, wavy)["weight"]
    assert report.relative_variance == pytest.approx(float(report.variance.sum() / report.exact.norm() ** 2))
    cosines = 0.0
    for mask, chance in all_masks(PROBABILITY):
        guess = torch.where(RANDOM, guesses_by_hand(*graph, mask, wavy)["weight"], 0.0)
        if guess.norm() > 0:
            cosines += chance * float((guess * report.exact).sum() / guess.norm() / report.exact.norm())
    assert report.draw_cosine == pytest.approx(cosines)


@pytest.mark.parametrize(("gate_rule", "exploration"), [("score", 0.15), ("weight", 0.0)])
def test_a_draw_of_the_library_has_the_gradient_that_is_measured(gate_rule, exploration):
    """Uses a block model in which every key is a separate cluster."""
    graph = inputs(seed=3)
    rows = PROBABILITY.expand(50, 1, *PROBABILITY.shape).clone().requires_grad_()
    unit = torch.eye(PROBABILITY.shape[1], dtype=torch.float64)
    block_model = BlockModel(rows, unit[None], unit[None, None])
    settings = dict(exploration=exploration, gate_rule=gate_rule, generator=seeded(5), return_edges=True)
    out = sbm_attention(*(t.expand(50, 1, *t.shape) for t in graph), block_model, **settings)
    (found,) = torch.autograd.grad(wavy(out.values[:, 0]).sum(), rows)
    for gradient, mask in zip(found[:, 0], out.edges.to_dense()[:, 0].double(), strict=True):
        torch.testing.assert_close(gradient, guesses_by_hand(*graph, mask, wavy)[gate_rule])
