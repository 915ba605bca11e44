"""Pathfinder images: what their labels say is what can be followed, in places and in pixels."""

from dataclasses import replace

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder import snakes as module
from sbmt.experiments.data.pathfinder.geometry import TURNS
from sbmt.experiments.data.pathfinder.images import draw_images, generate_images
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.snakes import Snakes
from tests.experiments.data.pathfinder import twin
from tests.statistics import binomial_p_values, uniform_p_value

HARD = PathfinderSettings()
SMALL = PathfinderSettings(
    size=16, contour_length=8, paddle_length=1.5, paddle_margin=0.75, marker_radius=1.25, seed_distance=4.0,
    continuity=0.7, n_distractors=2,
)  # fmt: skip
SINGLE = PathfinderSettings(contour_length=2, distractor_length=1, n_distractors=12, continuity=0.0, antialias=3)
LARGE = PathfinderSettings(
    size=64, antialias=1, paddle_margin=3.0, paddle_length=5.0, paddle_thickness=1.5, marker_radius=3.0,
    seed_distance=9.0, contour_length=6, continuity=2.0, n_distractors=0, padding=0.0, paddle_contrast=1.0,
)  # fmt: skip
SETTINGS = {"hard": HARD, "small": SMALL, "single": SINGLE, "large": LARGE}
N_IMAGES = 50


def made(n_images, settings, *seeds):
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds or [0, 0])))
    return generate_images(n_images, generator, settings)


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def drawn(request):
    """Settings, images, every paddle of each image ``(images, paddles, 2, 2)``, and whose they are."""
    settings = request.param
    images = made(N_IMAGES, settings)
    kinds = [twin.paddle_ends(kind, settings) for kind in (images.targets, images.distractors)]
    snakes = [kind.shape[2] for kind in kinds for _ in range(kind.shape[1])]  # their numbers of paddles
    paddles = np.concatenate([kind.reshape(N_IMAGES, -1, 2, 2) for kind in kinds], axis=1)
    return settings, images, paddles, np.repeat(np.arange(len(snakes)), snakes)


def test_snakes_stay_clear_of_each_other_and_labels_say_whether_paddles_lead_from_disc_to_disc(drawn):
    settings, images, paddles, owners = drawn
    margin, thickness = settings.paddle_margin, settings.paddle_thickness
    clear = np.sqrt((margin + thickness) ** 2 - 0.25**2) - 0.01  # a paddle is looked at every half a pixel
    place = np.arange(len(owners))
    is_neighbour = (owners[:, None] == owners) & (abs(place[:, None] - place) <= 1)
    joined = []
    for segments, discs in zip(paddles, images.discs / twin.UNITS, strict=True):
        distances = twin.segment_distances(segments)
        assert distances[~is_neighbour].min() >= clear
        gaps = distances[is_neighbour & (place[:, None] < place)]
        assert gaps.size == 0 or (margin / 2**0.5 - 0.01 <= gaps.min() and gaps.max() <= margin + 0.01)
        joined.append(twin.joined(segments, distances, discs, margin + 0.01))
    assert joined == images.labels.tolist() and 10 < sum(joined) < 40
    edge = settings.padding + thickness / 2 - 0.2  # and cells are a quarter of a pixel wide
    assert edge <= paddles.min() and paddles.max() <= settings.size - edge


def test_snakes_are_what_settings_say(drawn):
    settings, images, *_ = drawn
    n_distractors, distractor_length = settings.distractors()
    assert images.targets.directions.shape == (N_IMAGES, 2, settings.contour_length)
    assert images.distractors.directions.shape == (N_IMAGES, n_distractors, distractor_length)
    ends = twin.paddle_ends(images.targets, settings)
    seeds = np.linalg.norm(ends[:, 0, 0, 0] - ends[:, 1, 0, 0], axis=-1)
    assert abs(seeds - settings.seed_distance).max() < 0.03


def test_discs_are_apart_and_touch_their_own_snake_alone(drawn):
    settings, images, paddles, owners = drawn
    ends = twin.paddle_ends(images.targets, settings)
    for i, discs in enumerate(images.discs / twin.UNITS):
        for disc, at_end in zip(discs, (0, -1), strict=True):
            (snake,) = np.flatnonzero(abs(ends[i, :, at_end, at_end] - disc).max(-1) < 0.02)
            others = paddles[i, owners != snake]
            gap = twin.distance_to_segments(disc, others[:, 0], others[:, 1]).min()
            assert gap > settings.marker_radius + settings.paddle_thickness / 2
        distance = np.hypot(*(discs[0] - discs[1]))
        assert images.marker_distances[i] == pytest.approx(distance, abs=1e-9)
        assert distance >= 2 * settings.marker_radius + settings.paddle_margin - 0.01


def test_turns(drawn):
    settings, images, *_ = drawn
    angles = images.targets.directions * (2 * np.pi / 64)
    turns = abs(np.angle(np.exp(1j * np.diff(angles, axis=-1))))
    assert turns.max() < np.pi / 2 + 1e-9
    assert settings.continuity <= 1 or turns.max() < np.pi / 2 / settings.continuity
    total = turns.sum(-1)  # (images, snakes)
    ends = twin.paddle_ends(images.targets, settings)
    marked = [abs(ends[:, :, at, at] - images.discs[:, None, at] / 256).max(-1).argmin(1) for at in (0, -1)]
    assert ((marked[0] == marked[1]) == images.labels).all()
    assert np.allclose(images.turns, sum(np.take_along_axis(total, m[:, None], 1)[:, 0] for m in marked) / 2)


@pytest.mark.statistical(share=0.001)
def test_each_of_four_pairs_of_ends_is_equally_likely(judge):
    settings = PathfinderSettings(contour_length=3, n_distractors=0)
    mine = made(4000, settings)
    ends = mine.targets.ends(settings)
    marked = [(ends[:, :, at] == mine.discs[:, None, at]).all(-1).argmax(1) for at in (0, 1)]
    pairs = np.bincount(2 * marked[0] + marked[1], minlength=4)
    assert pairs[[0, 3]].sum() == mine.labels.sum()
    judge(binomial_p_values(pairs, 4000, 0.25), binomial_p_values(mine.labels.sum(), 4000, 0.5))


def test_pixels_are_means_of_samples(drawn):
    settings, images, paddles, _ = drawn
    differences = np.array([
        abs(twin.drawing(paddles[i], images.discs[i] / 256, settings) - images.pixels[i]) for i in range(20)
    ])  # fmt: skip
    # Only samples on the very rim of a paddle may fall to the other side of it.
    assert (differences > 0.51).mean() < 0.02
    levels = np.arange(settings.antialias**2 + 1)
    grey = round(255 * settings.paddle_contrast)
    possible = (levels[:, None] * 255 + levels * grey) / settings.antialias**2
    assert set(np.unique(images.pixels)) <= {int(x + 0.5) for x in possible.ravel()}
    assert images.pixels.dtype == np.uint8 and images.pixels.shape == (N_IMAGES, settings.size, settings.size)


def test_one_paddle_and_one_disc():
    settings = PathfinderSettings(size=6, paddle_length=3.0, paddle_thickness=1.0, marker_radius=1.0)
    places = np.array([[[[2 * 256 + 128, 1 * 256 + 128]]]])  # lies on x from 1 to 4, y from 1 to 2
    disc = np.array([[[4 * 256, 4 * 256]]])
    drawn = draw_images([Snakes(places, np.zeros((1, 1, 1), dtype=np.int64))], disc, settings)
    grey, rim = 191, 191  # contrast 0.75; three of the four samples of a pixel are in the disc
    assert drawn[0].tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, grey, grey, grey, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, rim, rim, 0],
        [0, 0, 0, rim, rim, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_images_depend_on_draws_and_settings_and_are_as_many_as_asked_for():
    first = made(3, HARD, 5)
    for other in (made(3, HARD, 6), made(3, replace(HARD, continuity=1.2), 5)):
        assert not (first.pixels == other.pixels).all()
    assert len(np.unique(first.pixels, axis=0)) == 3
    for n_images in (1, 299):  # from one round of attempts and from several
        images = made(n_images, SMALL)
        names = ("pixels", "labels", "marker_distances", "turns", "discs")
        assert {len(getattr(images, name)) for name in names} == {n_images}
        assert len(images.targets.middles) == len(images.distractors.directions) == n_images


def test_rules_for_distractors():
    pairs = {n: PathfinderSettings(contour_length=n).distractors() for n in (2, 6, 9, 14)}
    assert pairs == {2: (20, 1), 6: (10, 2), 9: (6, 3), 14: (5, 4)}
    assert PathfinderSettings(n_distractors=0, distractor_length=3).distractors() == (0, 3)
    assert PathfinderSettings(distractor_length=7).to_json()["n_distractors"] == 2


@pytest.mark.statistical(share=0.001)
def test_turns_follow_the_square_of_the_cosine(judge):
    # Two paddles in much room, and discs so small that a right angle does not bring them together.
    settings = PathfinderSettings(
        paddle_length=1.0, paddle_margin=0.5, contour_length=2, marker_radius=0.4, seed_distance=8.0, n_distractors=0
    )
    snakes = made(14_000, settings).targets
    places = snakes.middles[:, :, 0] / twin.UNITS
    is_inside = ((places > 5) & (places < 27)).all(-1)  # decided before a turn is drawn
    turns = (np.diff(snakes.directions)[is_inside].ravel() + 32) % 64 - 32
    weights = np.cos(2 * np.pi * TURNS / 64) ** 2
    cells = np.clip(turns, -8, 8)  # 15 single turns, and the sharper ones of each side together
    expected = np.array([weights[np.clip(TURNS, -8, 8) == cell].sum() for cell in range(-8, 9)])
    judge(uniform_p_value(np.bincount(cells + 8, minlength=17), len(turns) * expected / expected.sum()))


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
