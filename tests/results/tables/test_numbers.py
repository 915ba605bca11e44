"""Single numbers of result files, as templates quote them."""

import json
from pathlib import Path

import pytest
from jinja2 import TemplateError

from results.tables.marked import NUMBER, with_numbers
from results.tables.results import NOT_YET, Results

ROOT = Path(__file__).parents[3]


def run(trial, seed, accuracy, **about):
    test = {"accuracy": accuracy, "density": 0.25, "densities": [[0.1, 0.3], [0.5, 0.7]], "loss": 0}
    return {"trial": trial, "config": {"seed": seed}, "test": test | about, "n_test": 1000}


def measured(training, forward, half=None):
    """A processor on which a fitted mask takes half of full attention's time at twice so many tokens, and so on."""
    cases = [
        {
            "n": n,
            "is_training": is_training,
            "sweeps": [sweep],
            "results": {"sbm": {"ratio": even / n if even else 2.0}},
        }
        for n in (512, 2048)
        for sweep, is_training, even in (("n", True, training), ("n", False, forward), ("bfloat16", True, half))
        if sweep == "n" or half
    ]
    manifest = {"processor": f"even at {training}", "date": "2026-11-26"}
    return {"manifest": manifest, "suites": {"fitted": {"found": {"cases": cases}}}}


@pytest.fixture
def results(tmp_path):
    """Four runs, a file of another kind, two statements, and two processors, on one of which inference is slower."""
    runs = [run("sbm", 0, 0.9), run("full", 0, 0.8), run("sbm", 1, 0.7), run("full", 1, 0.71)]
    study = {"titles": {"sbm": "SBM", "full": "full"}, "runs": runs}
    scored = run("sbm", 0, 0.5, metrics={"perplexity": 258.96, "accuracy": 0.0})
    rows = [{"name": "n^(1/n) misprinted", "shown": "2.72 against 272", "grade": "slip", "outcome": "as stated"}]
    rows += [{"name": "a guess", "shown": "so", "grade": "slip", "outcome": "reported"}]
    files = {"listops": study, "deep": {"cases": {"a b": [{"x": -0.5}], "n": 16384}}, "theory": rows}
    files |= {"glue": {"mlm": {"titles": {"sbm": ""}, "runs": [scored]}}}
    (tmp_path / "results" / "machines" / "another").mkdir(parents=True)
    files |= {"bench_fitted": measured(1024, None), "machines/another/bench_fitted": measured(700, 1400, half=900)}
    for name, content in files.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return Results(tmp_path)


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ('median("listops", "sbm", "accuracy")', "0.800"),
        ('show(least("listops", "sbm", "accuracy"), ".1%")', "70.0 %"),
        ('show(greatest("listops", "sbm", "accuracy"), ".2f")', "0.90"),
        ('show(mean("listops", "full", "accuracy"), ".3f")', "0.755"),
        ('n_seeds("listops", "sbm", "accuracy")', "2"),
        ('median("listops", "sbm", "loss")', "0.000"),
        ('show(median("glue/mlm", "sbm", "perplexity"), ".0f")', "259"),
        ('median("glue/mlm", "sbm", "accuracy")', "0.000"),
        ('statement("n^(1/n) misprinted")', "2.72 against 272"),
        ('show(value("deep", "cases", "a b", 0, "x"), ".1f")', "−0.5"),
        ('value("deep", "cases", "n")', "16,384"),
        ('n_statements("slip")', "1"),
        ('show(points_ahead("listops", "sbm", "full"), ".1f")', "4.5"),
        ('show(points_lost("listops", "full", "sbm", "greatest"), ".1f")', "1.0"),
        ('show(points_lost("listops", "full", "sbm", "least"), ".0f")', "−10"),
        ('show(layer_density("listops", 2), ".1f")', "0.6"),
        ("algorithm_1_limit(1)", "0.632"),
        ('show(fitted_break_even("training", "least"), ",.0f")', "700"),
        ('show(fitted_break_even("training", "greatest"), ",.0f")', "1,000"),
        ('fitted_break_even("forward", "least")', NOT_YET),
        ('show(fitted_break_even("training", "greatest", "bfloat16"), ",.0f")', "900"),
        ('fitted_break_even("forward", "least", "bfloat16")', NOT_YET),
        ('median("listops", "linear", "accuracy")', NOT_YET),
        ('median("listops", "sbm", "f1")', NOT_YET),
        ('median("elsewhere", "sbm", "accuracy")', NOT_YET),
        ('statement("nothing of the kind")', NOT_YET),
    ],
)
def test_what_an_expression_shows(results, expression, shown):
    assert results.render(f"it is {{{{ {expression} }}}}, and") == f"it is {shown}, and"


@pytest.mark.bad_input
@pytest.mark.parametrize("expression", ["median('listops')", "medium('listops', 'sbm', 'accuracy')", "median("])
def test_a_mistake_in_an_expression_is_not_taken_for_a_missing_result(results, expression):
    with pytest.raises((TypeError, TemplateError)):
        results.render(f"{{{{ {expression} }}}}")


def test_the_files_that_a_template_reads_are_known(results):
    template = '{{ layer_density("listops", 2) }} of {{ statement("a guess") }}, {{ algorithm_1_limit(1) }}'
    assert results.files_of(template) == ["listops", "theory"]
    assert results.files_of("{{ step_time('sbm') }}") == ["landing"]  # though it is missing
    assert results.files_of("no number") == []


@pytest.mark.parametrize(("verdict", "n"), [("ahead", 1), ("behind", 0), ("undecided", 1), ("all", 2)])
def test_a_difference_is_decided_if_it_exceeds_its_interval(results, monkeypatch, verdict, n):
    monkeypatch.setattr("results.tables.numbers.LONG_RANGE", ("listops",))  # .9 against .8 of 1000; .70 against .71
    assert results.render(f'{{{{ n_comparisons("lra", "full", "{verdict}") }}}}') == str(n)


def test_numbers_between_comments_are_renewed(results):
    first = '<!-- n: show(median("listops", "sbm", "accuracy"), ".1f") -->'
    second = '<!-- n: value("deep", "cases", "n") -->'
    new = with_numbers(f"a {first}9.9<!-- /n -->, | {second}<!-- /n --> |", results.render)
    assert new == f"a {first}0.8<!-- /n -->, | {second}16,384<!-- /n --> |"
    assert with_numbers(new, results.render) == new


def test_markers_on_pages_stand_where_they_are_not_seen():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    marked = {page: page.read_text("utf-8") for page in pages if "<!-- n: " in page.read_text("utf-8")}
    assert len(marked) >= 3
    for page, text in marked.items():
        assert not [line for line in text.split("\n") if line.lstrip("> -*").startswith("<!-- n:")], page.name
        assert not [
            line
            for line in text.split("\n")
            if line.startswith("|")
            and "<!-- n: " in line
            and "|" in "".join(found[1] for found in NUMBER.findall(line))
        ], page.name
        assert text.count("<!-- n: ") == text.count("<!-- /n -->") == len(NUMBER.findall(text)), page.name
        assert NOT_YET not in text, page.name
