"""Tests paired comparisons of networks, whose uncertainty accounts for dependent answers."""

import numpy as np
import pytest

from results.measure.common import difference
from results.measure.paired import compared

draw = np.random.default_rng(1)


def test_the_mean_and_its_interval():
    one, other = draw.normal(size=(2, 3, 50))
    found = difference(one, other)
    assert found["mean"] == pytest.approx((one - other).mean())
    assert found["low"] < found["mean"] < found["high"] and (found["n_seeds"], found["n_items"]) == (3, 50)
    assert found == difference(one, other)
    same = difference(one, one)
    assert (same["mean"], same["error"], same["low"], same["high"]) == (0, 0, 0, 0)


def test_the_error_counts_what_is_independent():
    """Tests one seed of 400 items, three seeds that agree on every item, and 20 seeds whose items agree."""
    items, seeds = draw.normal(size=(1, 400)), draw.normal(size=(20, 1))
    for ahead, n in ((items, 400), (np.repeat(items, 3, 0), 400), (np.repeat(seeds, 500, 1), 20)):
        assert difference(ahead, 0 * ahead)["error"] == pytest.approx(ahead.std() / n**0.5, rel=0.1)


@pytest.mark.statistical(share=0.05)
def test_intervals_cover_the_truth_where_seeds_and_items_differ():
    """Tests coverage in 200 experiments with effects of seeds and items; naive intervals cover half."""
    covered = plain = 0
    for _ in range(200):
        ahead = draw.normal(size=(12, 1)) / 3 + draw.normal(size=(1, 80)) + draw.normal(size=(12, 80))
        found = difference(ahead, 0 * ahead)
        covered += found["low"] < 0 < found["high"]
        plain += abs(ahead.mean()) < 1.96 * ahead.std() / ahead.size**0.5
    assert covered >= 180 > 130 > plain


def means(found):
    return {kind: {trial: round(one["mean"], 9) for trial, one in trials.items()} for kind, trials in found.items()}


def test_answers_are_held_against_full_attention_random_masks_and_the_window():
    right = {"full": [1, 1, 1, 1], "fitted-2": [1, 1, 1, 0], "random-2": [1, 0, 0, 0], "window": [0, 0, 0, 0]}
    assert means(compared({trial: [answers] for trial, answers in right.items()})) == {
        "lost": {"fitted-2": 0.25, "random-2": 0.75, "window": 1.0},
        "ahead": {"fitted-2": 0.5},
        "ahead_of_window": {"fitted-2": 0.75},
    }
