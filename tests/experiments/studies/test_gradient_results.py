"""The results on disk about gradient estimators are what their script measures and shows."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


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
