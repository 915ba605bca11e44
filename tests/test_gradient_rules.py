"""What algebra promises of the gradient rules, and how the meter answers mistakes."""

import math

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.studies.gradient_estimators import measure_estimators
from tests.gradients_by_hand import PROBABILITY, WIDTH, convex, inputs, linear, wavy


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
    bias = measure_estimators(*graph, PROBABILITY, convex)["removal/q"].bias
    assert (bias >= -1e-12).all() and bias.max() > 0.1


def test_the_weight_rule_asks_for_no_more_and_no_fewer_edges():
    probability = torch.tensor([[0.7, 0.5, 0.1], [0.35, 0.2, 0.8]], dtype=torch.float64)
    reports = measure_estimators(*inputs(seed=7), probability, wavy)
    assert reports["weight"].mean.sum(1).abs().max() < 1e-12 < 0.01 < reports["score"].mean.sum(1).abs().min()
    assert reports["exact"].mean.sum(1).abs().min() > 0.01


def test_the_same_attention_with_all_scores_raised():
    """Softmax does not see a constant added to a row's scores, nor does the exact gradient. The score rule does."""
    query, key, value = inputs(seed=8)
    before = measure_estimators(query, key, value, PROBABILITY, wavy)
    stretch = ((WIDTH + 1) / WIDTH) ** 0.5  # undoes the greater width that scores are divided by
    wide_query = torch.cat([query * stretch, torch.full((2, 1), 3.0 * (WIDTH + 1) ** 0.5, dtype=torch.float64)], 1)
    wide_key = torch.cat([key, torch.ones(3, 1, dtype=torch.float64)], 1)
    after = measure_estimators(wide_query, wide_key, value, PROBABILITY, wavy)
    for name in ("exact", "weight", "removal", "reinforce"):
        torch.testing.assert_close(after[name].mean, before[name].mean, rtol=0, atol=1e-12)
    raised = before["score"].mean + 3.0 * before["weight"].mean
    torch.testing.assert_close(after["score"].mean, raised, rtol=0, atol=1e-12)


def test_the_score_rule_overlooks_an_edge_of_score_zero():
    query, key, value = inputs(seed=9)
    key[1] = 0.0
    reports = measure_estimators(query, key, value, torch.full((2, 3), 0.5, dtype=torch.float64), wavy)
    assert (reports["score"].mean[:, 1] == 0).all() and (reports["score"].variance[:, 1] == 0).all()
    assert reports["weight"].mean[:, 1].abs().min() > 1e-3 and reports["exact"].mean[:, 1].abs().min() > 1e-3


def test_an_edge_drawn_alone_teaches_a_gate_nothing():
    """Its weight is 1 whatever the gate, so in sparse masks gates fade with the square of p."""
    graph = inputs(seed=10)

    def mean(p, name):
        return measure_estimators(*graph, torch.full((2, 3), p, dtype=torch.float64), wavy)[name].mean.norm()

    for name in ("score", "weight"):
        assert mean(2e-4, name) / mean(1e-4, name) == pytest.approx(4, rel=1e-2)
    assert mean(2e-4, "removal") / mean(1e-4, "removal") == pytest.approx(2, rel=1e-2)


@pytest.mark.parametrize("exploration", [0.0, 0.5])
def test_certain_edges_learn_nothing_and_nearly_certain_ones_stay_finite(exploration):
    probability = torch.tensor([[1.0, 0.0, 1e-12], [0.999, 1.0, 0.5]], dtype=torch.float64)
    is_certain = (probability == 0) | (probability == 1)
    for report in measure_estimators(*inputs(), probability, wavy, exploration=exploration).values():
        for cells in (report.exact, report.mean, report.variance):
            assert (cells[is_certain] == 0).all() and cells.isfinite().all()
        assert math.isfinite(report.draw_cosine) and report.exact[~is_certain].abs().min() > 0


def test_inputs_keep_no_graph_and_may_be_single_precision():
    graph = [t.float().requires_grad_() for t in inputs(seed=11)]
    probability = PROBABILITY.float().requires_grad_()
    with torch.no_grad():
        single = measure_estimators(*graph, probability, wavy)["score"].mean
    assert single.dtype == torch.float64 and not single.requires_grad
    double = measure_estimators(*inputs(seed=11), PROBABILITY, wavy)["score"].mean
    torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-6)


def test_a_loss_that_ignores_the_values():
    anything = torch.ones((), dtype=torch.float64, requires_grad=True)
    reports = measure_estimators(*inputs(), PROBABILITY, lambda values: anything * torch.ones(len(values)))
    assert all((report.mean == 0).all() and report.cosine == 0 for report in reports.values())


QUERY, KEY, VALUE = inputs()
NAN = torch.full((2, 3), math.nan, dtype=torch.float64)


@pytest.mark.bad_input
@pytest.mark.parametrize("replaced, words", [
    (dict(probability=torch.full((2, 3), 1.5)), r"probability in \[0, 1\].*1.5"),
    (dict(probability=PROBABILITY.T), r"probability \(2, 3\), got \(3, 2\)"),
    (dict(probability=NAN), "finite numbers in probability"),
    (dict(probability=PROBABILITY > 0), "probability as a floating-point matrix.*bool"),
    (dict(query=NAN), "finite numbers in query"),
    (dict(query=QUERY[:, :2]), "keys as wide as queries"),
    (dict(key=KEY[:2]), "as many values as keys"),
    (dict(value=VALUE[None]), "value as a floating-point matrix"),
    (dict(exploration=1.0), "exploration"),
    (dict(loss=lambda values: values.sum()), r"a differentiable loss of shape \(16,\).*shape \(\)"),
    (dict(loss=lambda values: (values / values).sum((1, 2))), "a finite loss for every mask"),
])  # fmt: skip
def test_mistakes(replaced, words):
    arguments = dict(query=QUERY, key=KEY, value=VALUE, probability=PROBABILITY, loss=wavy)
    if words.startswith("a finite"):
        arguments["probability"] = torch.full((2, 3), 0.5, dtype=torch.float64)  # a query may read zeros
    with pytest.raises(SbmtError, match=words):
        measure_estimators(**arguments | replaced)


@pytest.mark.bad_input
def test_too_many_random_edges():
    with pytest.raises(SbmtError, match="1 to 16 random edges, got 17"):
        measure_estimators(*inputs(1, 17), torch.full((1, 17), 0.5), wavy)
