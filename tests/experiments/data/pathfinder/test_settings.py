"""Pathfinder's settings: what follows from them, and what they may not be."""

import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings


def test_rules_for_distractors():
    assert [PathfinderSettings(contour_length=n).distractors() for n in (2, 6, 9, 14)] == [
        (20, 1),
        (10, 2),
        (6, 3),
        (5, 4),
    ]
    assert PathfinderSettings(n_distractors=0, distractor_length=3).distractors() == (0, 3)
    assert PathfinderSettings(distractor_length=7).to_json()["n_distractors"] == 2


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(size=0), "size ≥ 1"),
        (dict(contour_length=1), "contour_length ≥ 2"),
        (dict(n_distractors=-1), "n_distractors ≥ 0"),
        (dict(n_distractors=10_000), "at most 32000 paddles per image, got 40028"),
        (dict(paddle_margin=float("nan")), "paddle_margin ≥ 0, got nan"),
        (dict(paddle_length=0.0), "paddle_length > 0"),
        (dict(marker_radius=-1.0), "marker_radius > 0"),
        (dict(paddle_thickness=0.4), "paddle_thickness ≥ 1/2"),
        (dict(seed_distance=3.9), "seed_distance ≥ .* = 4.0, got 3.9"),
        (dict(paddle_contrast=1.1), "paddle_contrast in"),
    ],
)
def test_bad_settings_are_refused(wrong, words):
    with pytest.raises(SbmtError, match=words):
        PathfinderSettings(**wrong)
