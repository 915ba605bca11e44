"""Tests numbers from result files, as templates quote them."""

import json

import pytest
from jinja2 import TemplateError

from results import lookup
from results.lookup import NOT_YET, render


def run(trial, seed, accuracy, **about):
    test = {"accuracy": accuracy, "density": 0.25, "densities": [[0.1, 0.3], [0.5, 0.7]], "loss": 0}
    return {"trial": trial, "config": {"seed": seed, "length": 64}, "test": test | about, "n_test": 1000}


def measured():
    """Returns times of a fitted mask, which takes half as long as full attention for 2,048 tokens in training."""
    cases = [
        {"n": n, "is_training": mode, "sweeps": ["n"], "results": {"sbm": {"ratio": 1024 / n if mode else 2.0}}}
        for n in (512, 2048)
        for mode in (True, False)
    ]
    return {"suites": {"fitted": {"found": {"cases": cases}}}}


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    """Writes four runs, other files, a statement, and times of a fitted mask that is slower in inference."""
    rows = [{"name": "n^(1/n) misprinted", "shown": "2.72 against 272", "grade": "slip", "outcome": "as stated"}]
    scored = run("sbm", 0, 0.5, metrics={"perplexity": 258.96, "accuracy": 0.0})
    kinds = [[{"kind": "oracle", "lost": share}] for share in (0.05, 0.5)]
    files = {
        "listops": {"runs": [run("sbm", 0, 0.9), run("full", 0, 0.8), run("sbm", 1, 0.7), run("full", 1, 0.71)]},
        "deep": {"cases": {"a b": [{"x": -0.5}], "n": 16384}},
        "theory": rows,
        "glue": {"mlm": {"runs": [scored]}},
        "attention_mass": {"networks": {"Image": {"shares": [0.05, 0.5], "levels": kinds}}},
        "bench_fitted": measured(),
    }
    monkeypatch.setattr(lookup, "ROOT", tmp_path)
    for name, content in files.items():
        path = tmp_path / "results" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), "utf-8")


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ('median("listops", "sbm", "accuracy")', "0.800"),
        ('show(mean("listops", "full", "accuracy"), ".3f")', "0.755"),
        ('show(mean("listops", "full", "edges"), ".0f")', "16"),
        ('show(median("glue/mlm", "sbm", "perplexity"), ".0f")', "259"),
        ('statement("n^(1/n) misprinted")', "2.72 against 272"),
        ('show(value("deep", "cases", "a b", 0, "x"), ".1f")', "−0.5"),
        ('seen("Image", "oracle", "lost", 0.5)', "0.500"),
        ('show(points_lost("listops", "full", "sbm", "least"), ".0f")', "−10"),
        ('show(layer_density("listops", 2), ".1f")', "0.6"),
        ('show(fitted_break_even("training"), ",.0f")', "1,000"),
    ],
)
def test_what_an_expression_shows(expression, shown):
    assert render(f"it is {{{{ {expression} }}}}, and") == f"it is {shown}, and"


@pytest.mark.parametrize(
    "expression",
    [
        'fitted_break_even("forward")',
        'median("listops", "linear", "accuracy")',
        'median("elsewhere", "sbm", "accuracy")',
        'statement("nothing of the kind")',
    ],
)
def test_what_the_files_lack_is_said_to_be_missing(expression):
    assert render(f"{{{{ {expression} }}}}") == NOT_YET


@pytest.mark.bad_input
@pytest.mark.parametrize("expression", ["median('listops')", "medium('listops', 'sbm', 'accuracy')", "median("])
def test_a_mistake_in_an_expression_is_not_taken_for_a_missing_result(expression):
    with pytest.raises((TypeError, TemplateError)):
        render(f"{{{{ {expression} }}}}")


@pytest.mark.parametrize(("verdict", "n"), [("ahead", 1), ("behind", 0), ("undecided", 1), ("all", 2)])
def test_a_difference_is_decided_if_it_exceeds_its_interval(monkeypatch, verdict, n):
    monkeypatch.setattr(lookup, "LONG_RANGE", ("listops",))  # .9 against .8 of 1000; .70 against .71
    assert lookup.n_comparisons("lra", "full", verdict) == n
