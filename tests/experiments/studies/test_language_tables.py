"""Tables of made-up results: every number where it belongs."""

from statistics import mean, stdev

import pytest

from sbmt.experiments.studies.language import TABLE_4
from sbmt.experiments.studies.language_tables import (
    glue_accuracy_table,
    glue_f1_table,
    glue_layers_table,
    glue_runs_table,
    glue_settings_table,
    mlm_table,
    short_title,
)
from sbmt.experiments.training.language import GLUE_TASKS

TRIALS = {"full": "full attention", "sbm": "SBM and window", "sbm-loops": "SBM and self-loops"}
DENSITIES = {"full": 1.0, "sbm": 0.25, "sbm-loops": 0.125, "scratch": 1.0}


def run_of(trial, seed, task="", at=0):
    density = DENSITIES[trial]
    metrics = {"macro_f1": 0.501 + at / 100, "pipeline_f1": 0.611 + at / 100 + seed / 50}
    layers = [[density, density / 2], [density / 4, density / 4]]
    return {
        "trial": trial,
        "config": {"seed": seed, "length": 128, "batch_size": 32, "steps": 2105},
        "test": {"accuracy": 0.7 + at / 100 + seed / 100, "density": density, "densities": layers, "metrics": metrics},
        "interval": [0.65 + at / 100, 0.75 + at / 100],
        "chance": 0.509,
        "chance_metrics": {"macro_f1": 0.3374, "pipeline_f1": 0.6751},
        "n_test": 872,
        "seconds": 1234.5,
        "data": {"name": task, "n_train": 60614, "origin": "official"},
    }


@pytest.fixture
def results():
    """Pre-training, and two seeds of two tasks."""
    mlm = []
    for at, trial in enumerate(TRIALS):
        run = run_of(trial, 0, "corpus-reduced")
        run["test"] |= {"loss": 5.0 + at / 8, "accuracy": 0.2 + at / 10, "metrics": {"perplexity": 150.0 + at}}
        mlm.append(run | {"frequencies": {"perplexity": 712.34, "accuracy": 0.0456}, "n_test": 400})
    found = {"mlm": {"titles": TRIALS, "runs": mlm}}
    for task in ("sst2", "mnli"):
        titles = TRIALS | {"scratch": "not pre-trained"}
        runs = [run_of(trial, seed, task, at) for seed in (0, 1) for at, trial in enumerate(titles)]
        found[task] = {"titles": titles, "runs": runs}
    return found


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_tables_have_as_many_cells_as_headings(results):
    of_all = (glue_accuracy_table, glue_f1_table, glue_runs_table, glue_layers_table, glue_settings_table)
    tables = [mlm_table(results["mlm"]), *(make(results) for make in of_all)]
    assert len({table.name for table in tables}) == len(tables)
    for table in tables:
        assert table.rows and all(len(row) == len(table.headings) for row in table.rows), table.name
        assert all(isinstance(cell, str) for row in table.rows for cell in row)


def test_pretraining(results):
    table = mlm_table(results["mlm"])
    assert "400 test blocks, 2,105 steps" in table.title
    found = cells(table)
    assert found["SBM and window"] == ("5.125", "151.0", "30.0", "25.0", "1,234")
    assert found["frequencies of tokens alone"][1:3] == ("712.3", "4.6")
    assert len(found) == 4


def test_accuracies_are_means_and_deviations_over_seeds(results):
    table = glue_accuracy_table(results)
    assert table.headings == ("attention", "SST-2", "MNLI")
    found = cells(table)
    values = [100 * (0.7 + 0.01 + seed / 100) for seed in (0, 1)]
    assert found["SBM and window"] == (f"{mean(values):.1f} ± {stdev(values):.1f} (25.0)",) * 2
    assert found["SBM and window"][0] == "71.5 ± 0.7 (25.0)"
    assert found["always the commonest label"] == ("50.9", "50.9")
    results["sst2"]["runs"] = [run for run in results["sst2"]["runs"] if run["config"]["seed"] == 0]
    assert cells(glue_accuracy_table(results))["SBM and window"][0] == "71.0 (25.0)"
    results["mnli"]["runs"] = [run for run in results["mnli"]["runs"] if run["trial"] != "sbm-loops"]
    assert cells(glue_accuracy_table(results))["SBM and self-loops"][1] not in ("", "0.0")


def test_f1_stands_beside_the_papers(results):
    found = cells(glue_f1_table(results))
    assert found["SBM and window"][0] == "63.1 ± 1.4 (25.0)"
    assert found["always the commonest label"] == ("67.5", "67.5")
    for title, row in TABLE_4.items():
        numbers = dict(zip(GLUE_TASKS, row, strict=True))
        assert found[f"paper: {title}"] == (f"{numbers['sst2']:.1f}", f"{numbers['mnli']:.1f}")
    assert found["paper: full attention"] == ("89.8", "84.0")


def test_every_run_has_its_row(results):
    table = glue_runs_table(results)
    rows = {row[:3]: dict(zip(table.headings, row, strict=True)) for row in table.rows}
    assert len(rows) == len(table.rows) == 2 * 2 * 4
    row = rows["MNLI", "SBM and window", "1"]
    assert (row["accuracy"], row["95 % interval"], row["density"]) == ("0.720", "0.660 to 0.760", "0.250")
    assert (row["macro F1"], row["pipeline's F1"]) == ("0.511", "0.641")
    assert (row["commonest label"], row["seconds"]) == ("0.509", "1,234")


def test_layers_are_means_over_heads_and_seeds(results):
    table = glue_layers_table(results)
    rows = {row[:2]: row[2:] for row in table.rows}
    assert set(rows) == {(t, TRIALS[a]) for t in ("MLM", "SST-2", "MNLI") for a in ("sbm", "sbm-loops")}
    assert rows["MLM", "SBM and window"] == ("18.8", "6.2") == rows["MNLI", "SBM and window"]
    assert glue_layers_table({"mlm": results["mlm"]}, ("reformer",)).rows == ()


def test_settings_tell_what_was_reduced(results):
    rows = cells(glue_settings_table(results))
    assert rows["MLM"] == ("`corpus-reduced`", "128", "32, 2,105", "60,614, 400", "official")
    assert rows["SST-2"][0] == "`sst2`" and rows["SST-2"][3] == "60,614, 872"


def test_titles_are_glues():
    assert [short_title(task) for task in (*GLUE_TASKS, "mlm")] == ["SST-2", "QQP", "MNLI", "QNLI", "MLM"]
