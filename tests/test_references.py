"""Single numbers of result files, asked for by name."""

import json

import pytest

from results.tables.markers import NUMBER, with_numbers
from results.tables.references import NOT_YET, Results
from tests.test_results import ROOT


def run(trial, seed, accuracy, **about):
    test = {"accuracy": accuracy, "density": 0.25, "densities": [[0.1, 0.3], [0.5, 0.7]], "loss": 0}
    return {"trial": trial, "config": {"seed": seed}, "test": test | about, "n_test": 1000}


@pytest.fixture
def results(tmp_path):
    """Four runs, a file of another kind, and two statements."""
    runs = [run("sbm", 0, 0.9), run("full", 0, 0.8), run("sbm", 1, 0.7), run("full", 1, 0.71)]
    study = {"titles": {"sbm": "SBM", "full": "full"}, "runs": runs}
    scored = run("sbm", 0, 0.5, metrics={"perplexity": 258.96, "accuracy": 0.0})
    rows = [{"name": "n^(1/n) misprinted", "shown": "2.72 against 272", "grade": "slip", "outcome": "as stated"}]
    rows += [{"name": "a guess", "shown": "so", "grade": "slip", "outcome": "reported"}]
    files = {"listops": study, "deep": {"cases": {"a b": [{"x": -0.5}], "n": 16384}}, "theory": rows}
    files |= {"glue": {"mlm": {"titles": {"sbm": ""}, "runs": [scored]}}}
    (tmp_path / "results").mkdir()
    for name, content in files.items():
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return Results(tmp_path)


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        ("listops/sbm/accuracy", "0.800"),
        ("listops/sbm/accuracy/least:.1%", "70.0 %"),
        ("listops/sbm/accuracy/greatest:.2f", "0.90"),
        ("listops/full/accuracy/mean:.3f", "0.755"),
        ("listops/sbm/accuracy/seeds", "2"),
        ("listops/sbm/loss", "0.000"),
        ("glue/mlm/sbm/perplexity:.0f", "259"),
        ("glue/mlm/sbm/accuracy", "0.000"),
        ("theory/n^(1/n) misprinted", "2.72 against 272"),
        ("deep/cases/a b/0/x:.1f", "−0.5"),
        ("deep/cases/n", "16,384"),
        ("count/theory/slip", "1"),
        ("points/listops/sbm/full:.1f", "4.5"),
        ("lost/listops/full/sbm/greatest:.1f", "1.0"),
        ("lost/listops/full/sbm/least:.0f", "−10"),
        ("layer/listops/2:.1f", "0.6"),
        ("limit/1", "0.632"),
        ("listops/linear/accuracy", NOT_YET),
        ("listops/sbm/f1", NOT_YET),
        ("elsewhere/sbm/accuracy", NOT_YET),
        ("theory/nothing of the kind", NOT_YET),
    ],
)
def test_what_a_reference_shows(results, reference, shown):
    assert results.shown(reference) == shown
    assert results.filled(f"it is {{{{{reference}}}}}, and") == f"it is {shown}, and"


@pytest.mark.parametrize(("verdict", "n"), [("ahead", 1), ("behind", 0), ("undecided", 1), ("all", 2)])
def test_a_difference_is_decided_if_it_exceeds_its_interval(results, monkeypatch, verdict, n):
    monkeypatch.setattr("results.tables.derived.LONG_RANGE", ("listops",))  # .9 against .8 of 1000; .70 against .71
    assert results.value(f"twins/lra/full/{verdict}") == n


def test_numbers_between_markers_are_renewed(results):
    text = "a <!-- n: listops/sbm/accuracy:.1f -->9.9<!-- /n -->, | <!-- n: deep/cases/n --><!-- /n --> |"
    new = with_numbers(text, results.shown)
    assert new == "a <!-- n: listops/sbm/accuracy:.1f -->0.8<!-- /n -->, | <!-- n: deep/cases/n -->16,384<!-- /n --> |"
    assert with_numbers(new, results.shown) == new


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
