"""The results on disk about gradient estimators are what their script measures and shows."""

import json
from pathlib import Path

import pytest

from results.measure.ste_bias import PROBABILITIES, bias_over_probability
from results.tables.studies import ESTIMATORS, ste_bias_table

ROOT = Path(__file__).parents[3]


def test_the_results_on_disk_are_what_the_script_measures():
    result = json.loads((ROOT / "results" / "ste_bias.json").read_text("utf-8"))
    assert result["settings"]["probabilities"] == list(PROBABILITIES)
    part = result["parts"][-1]
    settings = dict(alignment=part["alignment"], exploration=part["exploration"])
    for row in bias_over_probability([0.25], n_graphs=result["settings"]["n_graphs"], **settings):
        name = row.pop("estimator")
        kept = next(x for x in part["rows"] if (x["probability"], x["estimator"]) == (0.25, name))
        kept = {measure: number for measure, number in kept.items() if measure != "estimator"}
        assert row == pytest.approx(kept, rel=1e-3, abs=1e-6)


def test_the_table_holds_the_results():
    result = json.loads((ROOT / "results" / "ste_bias.json").read_text("utf-8"))
    for part in result["parts"]:
        lines = ste_bias_table(result, part["scores"], part["exploration"]).splitlines()
        assert len(lines) == 2 + len(ESTIMATORS) and {line.count("|") for line in lines} == {7}
        row = next(x for x in part["rows"] if (x["probability"], x["estimator"]) == (0.5, "weight"))
        assert f"| {row['relative_bias']:.2f} · {row['relative_variance']:.2g} · {row['cosine']:.2f} |" in lines[3]
