from dataclasses import replace

import pytest

from sbmt import SbmtError
from sbmt.training.comparison import METHODS, compare, summary
from sbmt.training.config import RepeatedTokensConfig

TINY = RepeatedTokensConfig(length=8, batch_size=4, steps=3, d_model=8, d_hidden=8, n_clusters=4, test_sequences=16)


def test_every_method_and_seed_runs_once_and_is_then_loaded(tmp_path):
    started, steps = [], []
    runs = compare(TINY, 2, tmp_path, lambda *start: started.append(start), steps.append)
    assert [method for method, _ in runs] == [*METHODS, *METHODS]
    assert started == [(method, seed, 0) for seed in (0, 1) for method in METHODS]
    assert len(steps) == 2 * len(METHODS) * TINY.steps

    again = compare(TINY, 2, tmp_path, None, lambda _: pytest.fail("trained again"))
    assert [run.test for _, run in again] == [run.test for _, run in runs]


def test_random_mask_has_the_density_that_sbm_found(tmp_path):
    runs = dict(compare(TINY, 1, tmp_path))
    assert runs["random-equal"].config.mask_density == runs["sbm"].test.density
    assert runs["random-quarter"].config.mask_density == 0.25
    assert runs["sbm-algorithm-1"].config.preset == "faithful"


def test_summary_reports_every_seed(tmp_path):
    runs = compare(TINY, 3, tmp_path)
    found = summary(runs)
    assert [(r["method"], r["config"]["seed"]) for r in found["runs"]] == [
        (method, seed) for seed in range(3) for method in METHODS
    ]
    densities = sorted(run.test.density for method, run in runs if method == "sbm")
    assert found["medians"]["sbm"]["density"] == round(densities[1], 4)


@pytest.mark.bad_input
def test_a_folder_with_other_settings_is_refused(tmp_path):
    compare(TINY, 1, tmp_path)
    with pytest.raises(SbmtError, match="--output"):
        compare(replace(TINY, steps=4), 1, tmp_path)
