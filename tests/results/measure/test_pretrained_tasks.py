"""Tests the intervals of losses due to masks in a pretrained encoder."""

import numpy as np
import pytest

tasks = pytest.importorskip("results.measure.pretrained_tasks", reason='needs pip install -e ".[pretrained]"')
Y = np.random.default_rng(0).random(400) < 0.5
FULL = np.where(Y, 1.0, -1.0)
WRONG = np.where(np.arange(400) < 40, -FULL, FULL)  # a tenth of the answers changes


def lost(*seeds):
    return tasks.lost(tasks.METRICS["sst2"], Y, FULL, np.stack(seeds))


def test_intervals_cover_the_choice_of_items_and_of_seeds():
    assert lost(FULL, FULL) == {"low": 0.0, "high": 0.0}
    one, both = lost(WRONG), lost(WRONG, FULL)  # the other seed loses nothing
    assert 0.06 < one["low"] < 0.1 < one["high"] < 0.14
    assert both["low"] == 0.0 and both["high"] == pytest.approx(one["high"], abs=0.02)
