"""The meter against plain loops over masks, against the library's own draws, and against what algebra promises."""

import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path

import pytest
import torch

from sbmt import BlockModel, SbmtError, edge_attention, sample_edges, sbm_attention
from sbmt.gradient_estimators import ESTIMATORS, measure_estimators
from tests.layers.inputs import seeded

ROOT = Path(__file__).parent.parent
WIDTH, D_VALUE = 3, 2


def inputs(n_queries=2, n_keys=3, seed=0):
    generator = seeded(seed)
    shapes = ((n_queries, WIDTH), (n_keys, WIDTH), (n_keys, D_VALUE))
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def wavy(values):
    """A smooth loss that is neither convex nor concave and tells all entries apart."""
    return (
        (values * torch.linspace(-1, 2, values[0].numel(), dtype=values.dtype).view(values.shape[1:])).sin().sum((1, 2))
    )


def linear(values):
    return (values * torch.linspace(-1, 2, values[0].numel(), dtype=values.dtype).view(values.shape[1:])).sum((1, 2))


def convex(values):
    return values.exp().sum((1, 2)) + values.square().sum((1, 2))


# Asymmetric; one edge is certain, one impossible, one nearly so.
PROBABILITY = torch.tensor([[0.7, 1.0, 0.1], [0.35, 0.0, 0.96]], dtype=torch.float64)
RANDOM = (PROBABILITY > 0) & (PROBABILITY < 1)


def all_masks(probability):
    """Every mask that can occur, with its chance."""
    choices = [(0.0,) if p == 0 else (1.0,) if p == 1 else (0.0, 1.0) for p in probability.flatten().tolist()]
    for cells in itertools.product(*choices):
        mask = torch.tensor(cells, dtype=torch.float64).view_as(probability)
        yield mask, float(torch.where(mask > 0, probability, 1 - probability).prod())


def read(query, key, value, mask):
    """Scores, weights and values of one mask, row by row."""
    scores = query @ key.T / WIDTH**0.5
    weights = torch.zeros_like(scores)
    for row in range(len(query)):
        drawn = mask[row] > 0
        if drawn.any():
            weights[row, drawn] = scores[row, drawn].exp() / scores[row, drawn].exp().sum()
    return scores, weights, weights @ value


def expected_loss(query, key, value, probability, loss):
    return sum(chance * float(loss(read(query, key, value, mask)[2][None])) for mask, chance in all_masks(probability))


def guesses_by_hand(query, key, value, mask, loss):
    """What the three straight-through rules say under one mask, by the chain rule on paper."""
    scores, weights, values = read(query, key, value, mask)
    values.requires_grad_()
    slope = torch.autograd.grad(loss(values[None]).sum(), values)[0]
    better = slope @ value.T - (slope * values.detach()).sum(-1, keepdim=True)  # slope · (v_j − h_i)
    removal = torch.zeros_like(weights)
    for row, column in mask.nonzero().tolist():
        is_alone = mask[row].sum() == 1  # without it the query reads zeros
        w = weights[row, column]
        removal[row, column] = slope[row] @ value[column] if is_alone else w / (1 - w) * better[row, column]
    return {"score": scores * weights * better, "weight": weights * better, "removal": removal}


def moments_by_hand(query, key, value, probability, loss, inclusion):
    """Mean and variance of every estimator, masks drawn with probability ``inclusion``."""
    baseline = expected_loss(query, key, value, inclusion, loss)
    first = {name: torch.zeros_like(probability) for name in ESTIMATORS if name != "exact"}
    second = {name: torch.zeros_like(probability) for name in first}
    for mask, chance in all_masks(inclusion):
        guesses = guesses_by_hand(query, key, value, mask, loss)
        guesses |= {f"{name}/q": guess / inclusion.clamp(min=1e-9) for name, guess in guesses.items()}
        odds = torch.where(mask > 0, 1 / inclusion, -1 / (1 - inclusion))
        guesses["reinforce"] = (loss(read(query, key, value, mask)[2][None]) - baseline) * odds
        for name, guess in guesses.items():
            learned = torch.where(RANDOM, guess, 0.0)
            first[name] += chance * learned
            second[name] += chance * learned**2
    return first, {name: second[name] - first[name] ** 2 for name in first}


@pytest.mark.parametrize("loss", [wavy, linear, convex])
@pytest.mark.parametrize("exploration", [0.0, 0.03, 0.2])
def test_the_exact_gradient_is_a_difference_quotient(loss, exploration):
    """E[L] is linear in each probability, so a difference quotient has no error but rounding."""
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


@pytest.mark.parametrize("loss", [wavy, linear])
@pytest.mark.parametrize("exploration", [0.0, 0.03])
def test_means_and_variances_are_those_of_a_loop_over_masks(loss, exploration):
    graph = inputs(seed=1)
    inclusion = torch.where(RANDOM, PROBABILITY + exploration, PROBABILITY)
    reports = measure_estimators(*graph, PROBABILITY, loss, exploration=exploration)
    first, second = moments_by_hand(*graph, PROBABILITY, loss, inclusion)
    assert tuple(reports) == ESTIMATORS
    for name in first:
        torch.testing.assert_close(reports[name].mean, first[name], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(reports[name].variance, second[name], rtol=1e-9, atol=1e-9)


def test_summaries_of_a_report():
    graph = inputs(seed=2)
    report = measure_estimators(*graph, PROBABILITY, wavy)["weight"]
    assert report.relative_bias == pytest.approx(float((report.mean - report.exact).norm() / report.exact.norm()))
    assert report.total_variance == pytest.approx(float(report.variance.sum()))
    assert report.relative_variance == pytest.approx(report.total_variance / float(report.exact.norm()) ** 2)
    cosine = (report.mean * report.exact).sum()
    assert report.cosine == pytest.approx(float(cosine / report.mean.norm() / report.exact.norm()))
    cosines = 0.0
    for mask, chance in all_masks(PROBABILITY):
        guess = torch.where(RANDOM, guesses_by_hand(*graph, mask, wavy)["weight"], 0.0)
        if guess.norm() > 0:
            cosines += chance * float((guess * report.exact).sum() / guess.norm() / report.exact.norm())
    assert report.draw_cosine == pytest.approx(cosines)


def library_draws(graph, probability, exploration, gate_rule, n_draws):
    """dL/dp of many draws, by way of a block model whose every key is a cluster of its own."""
    query, key, value = (t.expand(n_draws, 1, *t.shape) for t in graph)
    rows = probability.expand(n_draws, 1, *probability.shape).clone().requires_grad_()
    unit = torch.eye(probability.shape[1], dtype=torch.float64)
    block_model = BlockModel(rows, unit[None], unit[None, None])
    settings = dict(exploration=exploration, gate_rule=gate_rule, generator=seeded(5))
    out = sbm_attention(query, key, value, block_model, **settings)
    return torch.autograd.grad(wavy(out.values[:, 0]).sum(), rows)[0][:, 0].flatten(1)


def bernstein_p_values(mean, expected, variance, largest, n):
    """Bernstein's bound for means of n independent numbers, none further than ``largest`` from its expectation."""
    off = (mean - expected).abs()
    return (2 * torch.exp(-n * off**2 / (2 * variance + 2 / 3 * largest * off))).clamp(max=1)


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("exploration", [0.0, 0.15])
@pytest.mark.parametrize("gate_rule", ["score", "weight"])
def test_the_mean_is_that_of_the_librarys_own_draws(gate_rule, exploration, judge):
    probability = torch.tensor([[0.7, 0.5, 0.1], [0.35, 0.2, 0.8]], dtype=torch.float64)
    graph, n_draws = inputs(seed=3), 20_000
    reports = measure_estimators(*graph, probability, wavy, exploration=exploration)
    found = library_draws(graph, probability, exploration, gate_rule, n_draws).mean(0)
    guesses = [guesses_by_hand(*graph, mask, wavy)[gate_rule].flatten() for mask, _ in all_masks(probability)]

    def p_values(report):
        expected, variance = report.mean.flatten(), report.variance.flatten()
        largest = (torch.stack(guesses) - expected).abs().amax(0)
        return bernstein_p_values(found, expected, variance, largest, n_draws)

    other = reports["weight" if gate_rule == "score" else "score"]
    assert judge.rejects(p_values(other)) and judge.rejects(p_values(reports[f"{gate_rule}/q"]))
    judge(p_values(reports[gate_rule]))


@pytest.mark.statistical(share=0.001)
def test_reinforce_is_that_of_sampled_masks(judge):
    graph, n_draws = inputs(seed=4), 20_000
    probability = torch.tensor([[0.7, 0.5, 0.3], [0.35, 0.2, 0.8]], dtype=torch.float64)
    unit = torch.eye(3, dtype=torch.float64)
    edges = sample_edges(
        BlockModel(probability.expand(n_draws, 1, 2, 3), unit[None], unit[None, None]), generator=seeded(6)
    )
    values = edge_attention(*(t.expand(n_draws, 1, *t.shape) for t in graph), edges)[:, 0]
    odds = torch.where(edges.to_dense()[:, 0], 1 / probability, -1 / (1 - probability))
    surplus = wavy(values) - expected_loss(*graph, probability, wavy)
    found = (surplus[:, None, None] * odds).mean(0)
    report = measure_estimators(*graph, probability, wavy)["reinforce"]
    largest = 2 * surplus.abs().max() * 5 + report.mean.abs().max()  # 1 / q and 1 / (1 − q) are at most 5
    judge(bernstein_p_values(found, report.mean, report.variance, largest, n_draws))


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
    (dict(probability=PROBABILITY - 1), r"probability in \[0, 1\]"),
    (dict(probability=PROBABILITY.T), r"probability \(2, 3\), got \(3, 2\)"),
    (dict(probability=PROBABILITY[:0]), r"probability \(2, 3\), got \(0, 3\)"),
    (dict(probability=NAN), "finite numbers in probability"),
    (dict(probability=PROBABILITY > 0), "probability as a floating-point matrix.*bool"),
    (dict(probability=0.5), "probability as a floating-point matrix.*float"),
    (dict(probability=PROBABILITY.round()), "1 to 16 random edges, got 0"),
    (dict(query=NAN), "finite numbers in query"),
    (dict(query=QUERY[:, :2]), "keys as wide as queries"),
    (dict(key=KEY[:2]), "as many values as keys"),
    (dict(value=VALUE[None]), "value as a floating-point matrix"),
    (dict(value=VALUE[:, :0]), "none of them 0"),
    (dict(exploration=1.0), "exploration"),
    (dict(exploration=math.nan), "exploration"),
    (dict(loss=lambda values: values.sum()), r"a differentiable loss of shape \(16,\).*shape \(\)"),
    (dict(loss=lambda values: values.detach().sum((1, 2))), "a differentiable loss"),
    (dict(loss=lambda values: 0.0), "a differentiable loss.*float"),
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


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("measure_ste_bias", ROOT / "results" / "measure_ste_bias.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_results_on_disk_are_what_the_script_measures(script):
    result = json.loads((ROOT / "results" / "ste_bias.json").read_text("utf-8"))
    assert result["settings"]["probabilities"] == list(script.PROBABILITIES)
    part = result["parts"][-1]
    settings = dict(alignment=part["alignment"], exploration=part["exploration"])
    for row in script.bias_over_probability([0.25], n_graphs=result["settings"]["n_graphs"], **settings):
        name = row.pop("estimator")
        kept = next(x for x in part["rows"] if (x["probability"], x["estimator"]) == (0.25, name))
        kept = {measure: number for measure, number in kept.items() if measure != "estimator"}
        assert row == pytest.approx(kept, rel=1e-3, abs=1e-6)


def test_the_table_holds_the_results(script):
    result = json.loads((ROOT / "results" / "ste_bias.json").read_text("utf-8"))
    for part in result["parts"]:
        lines = script.ste_bias_table(result, part["scores"], part["exploration"]).splitlines()
        assert len(lines) == 2 + len(script.TITLES) and {line.count("|") for line in lines} == {7}
        row = next(x for x in part["rows"] if (x["probability"], x["estimator"]) == (0.5, "weight"))
        assert f"| {row['relative_bias']:.2f} · {row['relative_variance']:.2g} · {row['cosine']:.2f} |" in lines[3]
