"""Comparisons of networks answer by answer."""

import pytest
import torch

from results.measure.paired import compared, difference


def test_what_both_get_right_or_wrong_does_not_count():
    one, other = torch.tensor([1.0, 1, 1, 0, 0, 0, 0, 1]), torch.tensor([1.0, 1, 0, 0, 0, 0, 1, 0])
    found = difference(one, other)
    assert found["mean"] == pytest.approx(1 / 8)
    ahead = one - other
    assert found["error"] == pytest.approx(float(ahead.std() / 8**0.5))
    assert difference(one, one) == {"mean": 0.0, "error": 0.0}


def test_every_trial_is_held_against_full_attention_and_fitted_masks_against_random_ones():
    right = {"full": [1, 1, 1, 1], "fitted-2": [1, 1, 1, 0], "random-2": [1, 0, 0, 0], "window": [0, 0, 0, 0]}
    found = compared({trial: torch.tensor(answers).double() for trial, answers in right.items()})
    assert {trial: one["mean"] for trial, one in found["lost"].items()} == {
        "fitted-2": 0.25,
        "random-2": 0.75,
        "window": 1.0,
    }
    assert {trial: one["mean"] for trial, one in found["ahead"].items()} == {"fitted-2": 0.5}
    assert {trial: one["mean"] for trial, one in found["ahead_of_window"].items()} == {"fitted-2": 0.75}


def test_a_trial_of_one_seed_is_held_against_the_first():
    found = compared({"full": torch.tensor([1.0, 1, 1, 0, 0, 0]), "reformer": torch.tensor([1.0, 0, 1])})
    assert found["lost"]["reformer"]["mean"] == pytest.approx(1 / 3)
