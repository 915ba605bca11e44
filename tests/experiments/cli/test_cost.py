"""``sbmt cost``."""

import json

import pytest

from sbmt.experiments.costs.report import DENSITIES


@pytest.fixture
def cost(run):
    """Calls the command; returns what it printed."""

    def call(*arguments):
        code, out, err = run("cost", *arguments)
        assert code == 0, err
        return out

    return call


def test_the_papers_columns_are_shown(cost):
    shown = cost("--no-memory")
    assert shown.count("Nyströmformer") == 2
    assert "ListOps" in shown
    assert "Peak memory" not in shown


def test_lengths_densities_and_numbers_as_asked(cost, tmp_path):
    target = tmp_path / "deep" / "costs.json"
    cost("--no-memory", "--attention", "sbm", "--length", 300, "--length", 600, "--density", 0.2, "--json", target)
    found = json.loads(target.read_text())
    assert [(column["n"], column["density"]) for column in found["columns"]] == [(300, 0.2), (600, 0.2)]
    assert set(found["operations"]) == {"full", "sbm"}
    assert found["manifest"]["sbmt"]
    assert list(target.parent.iterdir()) == [target]


def test_one_density_for_all_tasks(cost, tmp_path):
    cost("--no-memory", "--attention", "sbm", "--density", 0.5, "--json", tmp_path / "c.json")
    columns = json.loads((tmp_path / "c.json").read_text())["columns"]
    assert [column["task"] for column in columns] == list(DENSITIES)
    assert {column["density"] for column in columns} == {0.5}


def test_parts_show_where_operations_are(cost):
    shown = cost("--no-memory", "--parts", "--attention", "sbm", "--length", 300)
    assert "2·b·h·n·k²" in shown
    assert "sampling: rates" in shown


def test_memory_is_shown(cost, monkeypatch):
    def peaks(cases):
        sizes = {"full": 8.0, "linear": 2.0}
        return [{"forward": sizes[case.method], "before": 1.0, "density": None} for case in cases]

    monkeypatch.setattr("sbmt.experiments.costs.report.peak_memory", peaks)
    shown = cost("--attention", "linear", "--length", 256)
    assert "2/2" in shown  # the progress bar
    *_, linear = [line.split() for line in shown.splitlines() if "linear" in line]
    assert linear[-2] == "0.25"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--parts", "an --attention with --parts"),
        ("--attention flash", "attention among"),
        ("--density 2", "density in (0, 1)"),
        ("--length 0", "n ≥ 1"),
        ("--json file/costs.json", "to write"),  # told before the work
    ],
)
def test_bad_requests_are_refused(run, tmp_path, arguments, words):
    (tmp_path / "file").write_text("")
    code, _, err = run("cost", *arguments.split())
    assert code == 2 and words in err
