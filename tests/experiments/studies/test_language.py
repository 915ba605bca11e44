"""Tests the settings and initial weights of all runs in studies of pre-training and fine-tuning."""

import json
from dataclasses import replace

import pytest

from sbmt import SbmtError
from sbmt.experiments.studies import language as language_studies
from sbmt.experiments.studies.language import TRIALS, fine_tuning_study, pretraining_study, run_language_studies
from sbmt.experiments.studies.study import run_study
from sbmt.experiments.training.tasks import REDUCED_MLM
from tests.experiments.training.tiny_language import N_TRAIN

pytestmark = pytest.mark.usefixtures("caches")


def config_of(study, name):
    (trial,) = [trial for trial in study.trials if trial.name == name]
    return study.config.override(**trial.settings)


@pytest.mark.parametrize("is_reduced", [True, False])
def test_every_pretrained_model_is_tuned(tmp_path, is_reduced):
    """One more run starts from random weights, with the tokeniser of the others."""
    names = ["full", "full-long", "sbm", "random-equal", "sbm-loops"]
    pretraining = pretraining_study(names, is_reduced=is_reduced)
    study = fine_tuning_study("sst2", pretraining, tmp_path, n_seeds=3, is_reduced=is_reduced)
    assert (study.name, study.title, study.n_seeds) == ("sst2", "SST-2", 3)
    assert [trial.name for trial in study.trials] == [*names, "scratch"]
    first = pretraining.config
    for name in names:
        config, before = config_of(study, name), config_of(pretraining, name)
        assert config.pretrained == str(tmp_path / f"{name}-seed0") and config.tokenizer == ""
        assert config.steps == study.config.steps  # regardless of the length of pre-training
        for field in ("attention", "options", "length", "d_model", "d_hidden", "n_layers", "n_heads"):
            assert getattr(config, field) == getattr(before, field)
    scratch = config_of(study, "scratch")
    assert (scratch.pretrained, scratch.tokenizer) == ("", str(tmp_path / "full-seed0" / "tokenizer.json"))
    assert scratch.attention == "full" and scratch.d_model == first.d_model
    epochs = 1 if is_reduced else 5
    assert study.config.steps == epochs * -(-N_TRAIN // 32)


@pytest.fixture
def small(monkeypatch, tiny_mlm):
    """Reduces the settings further, to suit the small text."""
    monkeypatch.setattr(language_studies, "REDUCED_MLM", tiny_mlm(steps=2, warmup_steps=0))


def test_studies_run_and_are_then_loaded(tmp_path, small):
    reports = []

    def run(study, folder):
        return run_study(study, folder, 1, lambda *given: reports.append(given))

    asked = dict(n_seeds=1, is_reduced=True, run=run)
    results = run_language_studies(["sbm", "random-equal"], ["sst2"], tmp_path, **asked)
    assert list(results) == ["mlm", "sst2"] and json.loads(json.dumps(results)) == results
    assert [run["trial"] for run in results["sst2"]["runs"]] == ["sbm", "random-equal", "scratch"]
    for name, result in results.items():
        runs = {run["trial"]: run for run in result["runs"]}
        density = runs["random-equal"]["config"]["options"]["mask_density"]
        assert density == runs["sbm"]["test"]["expected_density"], name
    tuned = {run["trial"]: run for run in results["sst2"]["runs"]}
    for trial in ("sbm", "random-equal"):
        (before,) = [run for run in results["mlm"]["runs"] if run["trial"] == trial]
        assert tuned[trial]["pretrained"]["perplexity"] == before["test"]["metrics"]["perplexity"]
        assert tuned[trial]["config"]["steps"] == 2 and tuned[trial]["config"]["batch_size"] == 32
    assert "pretrained" not in tuned["scratch"]

    reports.clear()
    again = run_language_studies(["sbm", "random-equal"], ["sst2"], tmp_path, **asked)
    assert [run["test"] for run in again["sst2"]["runs"]] == [run["test"] for run in results["sst2"]["runs"]]
    assert [given[-1] for given in reports] == [2] * 5  # the same number of runs, all finished


@pytest.mark.bad_input
def test_what_is_missing_is_told_before_the_first_run(tmp_path, small, monkeypatch, tiny_mlm):
    asked = dict(n_seeds=1, is_reduced=True)
    for names, tasks, words in (
        (["magic"], ["sst2"], "trial to be one of"),
        (["full", "random-equal"], ["sst2"], "the trial sbm"),
        (["full"], ["sst2", "cola"], "task to be one of"),
        (["full"], ["qqp"], "prepared examples in"),
    ):
        with pytest.raises(SbmtError, match=words):
            run_language_studies(names, tasks, tmp_path / "runs", **asked)
    monkeypatch.setattr(language_studies, "REDUCED_MLM", replace(tiny_mlm(), data="none"))
    with pytest.raises(SbmtError, match="prepared examples in"):
        run_language_studies(["full"], ["sst2"], tmp_path / "runs", **asked)
    assert not (tmp_path / "runs").exists()


def test_every_attention_is_pretrained_once():
    study = pretraining_study(TRIALS)
    assert study.config == REDUCED_MLM and study.n_seeds == 1
    attentions = {"random-equal": "random_mask", "window": "random_mask", "sbm-loops": "sbm"}
    for name in TRIALS:
        config = config_of(study, name)
        assert config.attention == attentions.get(name, name.removesuffix("-long"))
        assert config.steps == REDUCED_MLM.steps * (3 if name == "full-long" else 1)
        if hasattr(config.options, "window"):
            assert config.options.window == (0 if name == "sbm-loops" else 16)
