"""How Pathfinder's snakes grow: the law of their turns, the map that keeps them apart, and where there is no room."""

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder import snakes as module
from sbmt.experiments.data.pathfinder.geometry import TURNS, tables
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.snakes import FREE, OccupiedMap
from tests.experiments.data.pathfinder.test_images import HARD, made
from tests.experiments.data.pathfinder.twin import UNITS
from tests.statistics import uniform_p_value


@pytest.mark.statistical(share=0.001)
def test_turns_follow_the_square_of_the_cosine(judge):
    # Two paddles in much room, and discs so small that a right angle does not bring them together.
    settings = PathfinderSettings(
        paddle_length=1.0, paddle_margin=0.5, contour_length=2, marker_radius=0.4, seed_distance=8.0, n_distractors=0
    )
    snakes = made(14_000, settings).targets
    places = snakes.middles[:, :, 0] / UNITS
    is_inside = ((places > 5) & (places < 27)).all(-1)  # decided before a turn is drawn
    turns = (np.diff(snakes.directions)[is_inside].ravel() + 32) % 64 - 32
    weights = np.cos(2 * np.pi * TURNS / 64) ** 2
    cells = np.clip(turns, -8, 8)  # 15 single turns, and the sharper ones of each side together
    expected = np.array([weights[np.clip(TURNS, -8, 8) == cell].sum() for cell in range(-8, 9)])
    judge(uniform_p_value(np.bincount(cells + 8, minlength=17), len(turns) * expected / expected.sum()))


def test_the_map_of_occupied_places():
    land, both, one = OccupiedMap(2, HARD), np.arange(2), np.arange(1)
    paddle, (middle, beyond) = tables(HARD).paddle_cells[:1], np.array([[[16, 16]] * 2, [[16, 18]] * 2]) * 256

    def is_open(y, beside):
        return land.has_room(both, np.array([[[[16 * 256, int(y * 256)]]]] * 2), beside)[:, 0].tolist()

    land.claim(both, middle, paddle, 1)  # keeps others 1.85 pixels away
    assert is_open(17.6, FREE) == is_open(17.6, 2) == [False, False] and is_open(17.6, 1) == [True, True]
    assert is_open(18.1, FREE) == [True, True]
    land.claim(one, beyond[:1], paddle, 2)
    assert is_open(17.6, 1) == [True, True]  # who came first keeps it
    assert is_open(18.1, 1) == [False, True] and is_open(18.1, 2) == [True, True]
    land.release(one, beyond[:1], paddle, 2)
    assert is_open(17.6, FREE) == [False, False] and is_open(18.1, FREE) == [True, True]
    land.claim(one, beyond[:1], paddle, 3, rival=1)  # unless the other one is just there
    assert is_open(17.6, 1) == [False, True] and is_open(17.6, 3) == [False, False]
    assert is_open(14.4, 1) == [True, True]
    assert not any(is_open(0.5, beside)[0] for beside in (FREE, 1, 3))  # the edge


@pytest.mark.parametrize(
    "settings",
    [
        PathfinderSettings(size=16, contour_length=60),
        PathfinderSettings(size=12, contour_length=2, n_distractors=100),
        PathfinderSettings(seed_distance=60.0),
        PathfinderSettings(padding=100.0),
    ],
)
def test_no_room(settings, monkeypatch):
    monkeypatch.setattr(module, "_MOST_FAILURES", 300)
    with pytest.raises(SbmtError, match=r"one of \d+ attempts satisfies, got PathfinderSettings.*: shorten the snakes"):
        made(2, settings)
