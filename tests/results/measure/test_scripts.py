"""Tests measurement scripts with sizes that take only a moment."""

import pytest

from results import lookup
from results.lookup import load
from results.measure import causal, gpu_training, recall_lengths, ste_bias
from results.measure.common import RUNS
from sbmt.experiments.plots.causal import draw_causal
from sbmt.experiments.studies.named import STUDIES


def test_gradient_estimators_are_what_the_result_file_says():
    published = load("ste_bias")
    assert published["settings"]["probabilities"] == list(ste_bias.PROBABILITIES)
    part = published["parts"][-1]
    for row in ste_bias.rows_at(0.25, part["alignment"], part["exploration"]):
        kept = lookup.find(part["rows"], probability=0.25, estimator=row["estimator"])
        assert row.pop("estimator") == kept["estimator"]
        assert row == pytest.approx({name: kept[name] for name in row}, rel=1e-3, abs=1e-6)


def test_figures_are_drawn_from_what_is_published(tmp_path, monkeypatch):
    monkeypatch.setattr(recall_lengths, "RESULTS", tmp_path)
    found = load("recall_lengths")
    complete = [run for run in found["evaluated"] if len(run["lengths"]) == len(recall_lengths.LENGTHS)]
    recall_lengths.draw(complete, found["times"])
    draw_causal(load("causal"), tmp_path / "causal.png")
    assert {path.name for path in tmp_path.iterdir()} == {"recall.png", "causal.png"}


def test_bits_and_times_of_causal_models_are_measured_as_published():
    tokens, lengths = causal.step(40, attention="full").run(None), causal.LENGTHS
    assert tokens.values.shape == (1, 1, 256)
    assert causal.step(40, preset="fitted").run(None).values.shape == (1, 1, 256)
    found = load("causal")
    assert list(found["decode"]) == [str(n) for n in lengths]
    full, *others = found["text"]
    assert full["behind"]["mean"] == 0.0
    for row in others:
        assert sum(row["bits"]) / len(row["bits"]) == pytest.approx(full["bits"][0] + row["behind"]["mean"])


def test_longer_recall_goes_on_from_the_same_attention_among_fewer_tokens():
    shorter = {trial.name: trial for trial in STUDIES["causal-recall"].trials}
    for n, before in ((256, "causal-recall"), (1024, "causal-recall-256")):
        study = causal.longer(n, before, seed=2)
        assert study.config.length * study.config.batch_size == 4096 and study.config.n_pairs >= n // 4 - 1
        names = [(trial.name, seed) for trial, seed in study.plan()]
        assert names == [(name, 2) for name in ("full", "fitted-16", "fitted-14", "fitted-8", "random", "linear")]
        for trial in study.trials:
            start = str(RUNS / before / f"{trial.name}-seed2")
            assert trial.settings == shorter[trial.name].settings | {"start": start}
            assert trial.density_of == shorter[trial.name].density_of


def test_the_time_of_the_first_accurate_steps_is_found():
    accuracies, seconds = [0.5, *[1.0] * 12], [float(x) for x in range(13)]
    assert gpu_training.first_reached(accuracies, seconds) == 10.0
    assert gpu_training.first_reached([0.9, *accuracies[1:]], seconds) == 9.0
    assert gpu_training.first_reached([0.98] * 13, seconds) is None
    assert gpu_training.first_reached([1.0] * 9, seconds[:9]) is None


def test_training_on_a_gpu_is_timed_step_by_step():
    small = {"length": 8, "batch_size": 2, "steps": 12}
    for settings in gpu_training.NETWORKS.values():
        config = gpu_training.CONFIG.override(**settings).override(**small)
        found = gpu_training.time_training(config, "cpu")
        assert found["config"]["attention"] == settings["attention"]
        assert found["until_solved"] is None and found["start"] > 0
        assert {name: len(values) for name, values in found["steps"].items()} == {
            "accuracy": 12, "density": 12, "seconds": 12
        }  # fmt: skip
        assert found["steps"]["seconds"] == sorted(found["steps"]["seconds"])
