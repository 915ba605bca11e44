import json
import multiprocessing
import pickle
from dataclasses import replace

import pytest

from sbmt import SbmtError
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Trial, run_study, summary
from sbmt.experiments.training.config import build_model
from tests.experiments.studies.tiny import DEMO, TINY
from tests.experiments.training.runs import contents

EQUAL = Trial("sbm", "SBM"), Trial("random", "random", {"attention": "random_mask"}, density_of="sbm")
NAMES = [trial.name for trial in DEMO.trials]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder of one run of the tiny demo."""
    run_study(DEMO, folder := tmp_path_factory.mktemp("demo"))
    return folder


def numbers(runs):
    return [(name, run.config.seed, run.test, run.history) for name, run in runs]


def test_every_trial_and_seed_runs_once_and_is_then_loaded(tmp_path):
    reports = []
    study = replace(DEMO, n_seeds=2)
    runs = run_study(study, tmp_path, report=lambda *given: reports.append(given))
    assert [name for name, _ in runs] == [*NAMES, *NAMES]
    began = [(name, seed) for name, seed, step in reports if step == 0]
    assert sorted(began) == sorted((name, seed) for seed in (0, 1) for name in NAMES)
    assert len(reports) == len(runs) * (1 + TINY.steps)
    found = json.loads(json.dumps(summary(study, runs)))
    assert [(r["trial"], r["config"]["seed"]) for r in found["runs"]] == [(n, seed) for seed in (0, 1) for n in NAMES]
    densities = [run.test.density for name, run in runs if name == "sbm"]
    assert found["medians"]["sbm"]["density"] == round(sum(densities) / 2, 4)
    assert all(result["curve"]["step"] == [1, 2, 3] for result in found["runs"])

    reports.clear()
    again = run_study(study, tmp_path, report=lambda *given: reports.append(given))
    assert numbers(again) == numbers(runs)
    assert [step for _, _, step in reports] == [TINY.steps] * len(runs)


def test_processes_give_the_same_numbers(folder, tmp_path):
    reports = []
    study = replace(DEMO, trials=DEMO.trials[:2])
    together = run_study(study, tmp_path, n_workers=2, report=lambda *given: reports.append(given))
    assert numbers(together) == numbers(run_study(study, folder))
    both = {(name, number) for name in NAMES[:2] for number in range(1, TINY.steps + 1)}
    assert {(name, step.number) for name, _, step in reports if step != 0} == both


def test_a_worker_that_is_killed_is_told(tmp_path):
    def kill_workers(*given):
        for process in multiprocessing.active_children():
            process.kill()

    long = replace(DEMO, config=replace(TINY, steps=100_000))
    with pytest.raises(SbmtError, match="fewer workers"):
        run_study(long, tmp_path, n_workers=2, report=kill_workers)


def test_beside_self_loops_a_random_mask_has_the_edge_probability_that_another_trial_reached(folder):
    runs = dict(run_study(DEMO, folder))
    reached, random = runs["fitted"].test, runs["random-equal"]
    assert random.config.options.mask_density == reached.expected_density < reached.density
    whole = 1 / 8 + (1 - 1 / 8) * reached.expected_density
    assert random.test.expected_density == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("name", STUDIES)
def test_every_named_study_has_models_to_train(name):
    study = STUDIES[name]
    sizes = {"recall": {"n_pairs": 2, "n_queries": 2, "n_distractors": 4}}
    sizes["causal-recall"] = {"n_pairs": 2}
    small = {"length": 16} | sizes.get(name, {})
    info = {"vocab_size": 9, "class_names": ["a", "b"], "n_documents": 1}
    for trial in study.trials:
        build_model(study.config.override(**trial.settings, **small), info)
        assert trial.density_of in (None, *(other.name for other in study.trials))
    assert len({trial.title for trial in study.trials}) == len(study.trials)


@pytest.mark.parametrize("name", [name for name in STUDIES if name.endswith("-edges")])
def test_fitted_masks_have_a_random_twin_with_the_same_window(name):
    study = STUDIES[name]
    settings = {trial.name: trial.settings for trial in study.trials}
    twins = {trial.density_of: trial.settings for trial in study.trials if trial.density_of}
    assert set(twins) == {name for name in settings if name.startswith("fitted")}
    for name, twin in twins.items():
        fitted = study.config.override(**settings[name]).options
        window = 0 if fitted.window is None else fitted.window  # the preset's self-loops
        reweight = True if fitted.reweight is None else fitted.reweight
        shared = {name: twin[name] for name in ("attention", "window", "reweight", "sink")}
        assert shared == {"attention": "random_mask", "window": window, "reweight": reweight, "sink": True}


@pytest.mark.bad_input
def test_a_folder_with_other_settings_is_refused(folder):
    """The error also passes through pickling, if a worker raises it."""
    with pytest.raises(SbmtError, match="--output") as told:
        run_study(replace(DEMO, trials=DEMO.trials[:1], config=replace(TINY, steps=4)), folder)
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)


@pytest.mark.bad_input
def test_a_run_is_not_taken_for_a_study(folder):
    """The result of the study would replace that of the run."""
    run = folder / "fitted-seed0"
    before = contents(run)
    with pytest.raises(SbmtError, match="a folder for several runs"):
        run_study(DEMO, run)
    assert contents(run) == before


FULL = Trial("full", "full", {"attention": "full"})


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ((FULL, FULL), "a different name for each"),
        ((replace(FULL, n_seeds=0),), "1 to 10,000 seeds per trial"),
        ((replace(FULL, name="../full"),), "trials to have names made of letters"),
        ((replace(FULL, name="\ud800"),), "trials to have names made of letters"),
        ((replace(FULL, title="\ud800"),), "remove lone surrogates"),
        ((FULL, replace(EQUAL[1], density_of="magic")), "density_of to be one of 'full'"),
        ((*EQUAL, replace(EQUAL[1], name="third", density_of="random")), "density_of to be one of 'sbm'"),
        ((EQUAL[0], replace(EQUAL[1], n_seeds=2)), "as many seeds for 'sbm' as for 'random'"),
    ],
)
def test_trials_that_do_not_fit_together_are_refused(trials, words):
    with pytest.raises(SbmtError, match=words):
        replace(DEMO, trials=trials)
