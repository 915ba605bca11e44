"""Scripts that measure, on sizes that take a moment."""

import ast
import json

import pytest
import torch

from results import lookup
from results.lookup import ROOT, load
from results.measure import block_masks, fitted_cost, landing, recall_lengths, ste_bias
from sbmt import EdgeList
from sbmt.experiments.training import SIZES

SCRIPTS = sorted((ROOT / "results" / "measure").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_says_what_it_writes(path):
    text = path.read_text("utf-8")
    assert len(text.splitlines()) < 100
    if path.stem not in ("__init__", "common"):
        assert "results/" in ast.get_docstring(ast.parse(text))


def test_gradient_estimators_are_what_the_result_file_says():
    published = load("ste_bias")
    assert published["settings"]["probabilities"] == list(ste_bias.PROBABILITIES)
    part = published["parts"][-1]
    for row in ste_bias.rows_at(0.25, part["alignment"], part["exploration"]):
        kept = lookup.find(part["rows"], probability=0.25, estimator=row["estimator"])
        assert row.pop("estimator") == kept["estimator"]
        assert row == pytest.approx({name: kept[name] for name in row}, rel=1e-3, abs=1e-6)


def test_steps_of_published_runs_are_timed_in_turn():
    small = SIZES["demo"].override(steps=5, length=8, batch_size=2)
    settings = {"full": {"attention": "full"}, "fitted": {"preset": "fitted", "n_clusters": 4}}
    runs = [{"trial": trial, "config": small.override(**mine).to_dict()} for trial, mine in settings.items()]
    found = landing.measure_seed(runs)
    assert found["full"]["ratio"] == 1 and found["fitted"]["rounds"] == 4


def test_blocks_that_hold_an_edge_are_counted():
    mask = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    mask[..., 0, 3] = mask[..., 3, 3] = True
    assert block_masks.visited(EdgeList.from_dense(mask), 2) == 0.5


def test_figures_are_drawn_from_what_is_published(tmp_path, monkeypatch):
    monkeypatch.setattr(fitted_cost, "RESULTS", tmp_path)
    monkeypatch.setattr(recall_lengths, "RESULTS", tmp_path)
    fitted_cost.draw(load("fitted_cost"))
    found = load("recall_lengths")
    complete = [run for run in found["evaluated"] if len(run["lengths"]) == len(recall_lengths.LENGTHS)]
    recall_lengths.draw(complete, found["times"])
    assert {path.name for path in tmp_path.iterdir()} == {"fitted.png", "recall.png"}


def test_attention_masses_that_were_measured_are_kept(tmp_path, monkeypatch):
    from results.measure import attention_mass

    monkeypatch.setattr(attention_mass, "RUNS", tmp_path)
    (tmp_path / "attention-mass").mkdir()
    (tmp_path / "attention-mass" / "Text.json").write_text(json.dumps({"shares": [0.05], "manifest": {}}), "utf-8")
    assert attention_mass.kept("Text") == {"shares": [0.05]}
