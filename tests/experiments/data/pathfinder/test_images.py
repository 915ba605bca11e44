"""Pathfinder images: what their labels say is what can be followed, in places and in pixels."""

from dataclasses import replace

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.pathfinder.images import draw_images, generate_images
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.snakes import Snakes
from tests.experiments.data.pathfinder import twin
from tests.statistics import binomial_p_values

HARD = PathfinderSettings()
SMALL = PathfinderSettings(
    size=16, contour_length=8, paddle_length=1.5, paddle_margin=0.75, marker_radius=1.25, seed_distance=4.0,
    continuity=0.7, n_distractors=2,
)  # fmt: skip
ODD = [
    PathfinderSettings(contour_length=2, distractor_length=1, n_distractors=12, continuity=0.0),
    PathfinderSettings(contour_length=9, antialias=3, padding=0.0, paddle_thickness=1.0, paddle_contrast=1.0),
    PathfinderSettings(size=64, antialias=1, paddle_margin=3.0, paddle_length=5.0, paddle_thickness=1.5,
                       marker_radius=3.0, seed_distance=9.0, contour_length=6, continuity=2.0, n_distractors=0),
    PathfinderSettings(size=25, contour_length=7, paddle_margin=0.0, marker_radius=0.5, seed_distance=3.0),
]  # fmt: skip
SETTINGS = [HARD, SMALL, *ODD]
NAMES = ["hard", "small", "single", "thick", "large", "gapless"]
any_settings = pytest.mark.parametrize("settings", SETTINGS, ids=NAMES)


def made(n_images, settings, *seeds):
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds or [0, 0])))
    return generate_images(n_images, generator, settings)


@pytest.fixture(scope="module")
def images():
    return {settings: made(150, settings) for settings in SETTINGS}


def all_paddles(images, settings):
    """Every paddle of each image, (images, paddles, 2, 2), and whose they are."""
    kinds = [twin.paddle_ends(kind, settings) for kind in (images.targets, images.distractors)]
    owners = [i for kind in (0, 1) for i in range(kinds[kind].shape[1]) for _ in range(kinds[kind].shape[2])]
    n_targets = 2 * settings.contour_length
    owners = np.array(owners) + np.where(np.arange(len(owners)) < n_targets, 0, 2)
    return np.concatenate([kind.reshape(len(images.labels), -1, 2, 2) for kind in kinds], axis=1), owners


@any_settings
def test_snakes_stay_clear_of_each_other_and_of_themselves(images, settings):
    paddles, owners = all_paddles(images[settings], settings)
    margin, thickness = settings.paddle_margin, settings.paddle_thickness
    clear = np.sqrt((margin + thickness) ** 2 - 0.25**2) - 0.01  # a paddle is looked at every half a pixel
    place = np.arange(len(owners))
    is_neighbour = (owners[:, None] == owners) & (abs(place[:, None] - place) <= 1)
    for segments in paddles:
        distances = twin.segment_distances(segments)
        assert distances[~is_neighbour].min() >= clear
        gaps = distances[is_neighbour & (place[:, None] < place)]
        assert gaps.size == 0 or (margin / 2**0.5 - 0.01 <= gaps.min() and gaps.max() <= margin + 0.01)
    edge = settings.padding + thickness / 2 - 0.2  # and cells are a quarter of a pixel wide
    assert edge <= paddles.min() and paddles.max() <= settings.size - edge


@any_settings
def test_snakes_are_what_settings_say(images, settings):
    mine = images[settings]
    n_distractors, distractor_length = settings.distractors()
    assert mine.targets.directions.shape == (150, 2, settings.contour_length)
    assert mine.distractors.directions.shape == (150, n_distractors, distractor_length)
    ends = twin.paddle_ends(mine.targets, settings)
    seeds = np.linalg.norm(ends[:, 0, 0, 0] - ends[:, 1, 0, 0], axis=-1)
    assert abs(seeds - settings.seed_distance).max() < 0.03


@any_settings
def test_discs_are_apart_and_touch_their_own_snake_alone(images, settings):
    mine = images[settings]
    paddles, owners = all_paddles(mine, settings)
    ends = twin.paddle_ends(mine.targets, settings)
    for i, discs in enumerate(mine.discs / twin.UNITS):
        for disc, at_end in zip(discs, (0, -1), strict=True):
            (snake,) = np.flatnonzero(abs(ends[i, :, at_end, at_end] - disc).max(-1) < 0.02)
            others = paddles[i, owners != snake]
            gap = twin.distance_to_segments(disc, others[:, 0], others[:, 1]).min()
            assert gap > settings.marker_radius + settings.paddle_thickness / 2
        distance = np.hypot(*(discs[0] - discs[1]))
        assert mine.marker_distances[i] == pytest.approx(distance, abs=1e-9)
        assert distance >= 2 * settings.marker_radius + settings.paddle_margin - 0.01


@pytest.mark.parametrize("settings", SETTINGS[:-1], ids=NAMES[:-1])
def test_labels_say_whether_paddles_lead_from_disc_to_disc(images, settings):
    mine = images[settings]
    paddles, _ = all_paddles(mine, settings)
    found = [
        twin.joined(*image, settings.paddle_margin + 0.01) for image in zip(paddles, mine.discs / 256, strict=True)
    ]
    assert found == mine.labels.tolist() and 40 < sum(found) < 110


@any_settings
def test_turns(images, settings):
    mine = images[settings]
    angles = mine.targets.directions * (2 * np.pi / 64)
    turns = abs(np.angle(np.exp(1j * np.diff(angles, axis=-1))))
    assert turns.max() < np.pi / 2 + 1e-9
    assert settings.continuity <= 1 or turns.max() < np.pi / 2 / settings.continuity
    total = turns.sum(-1)  # (images, snakes)
    ends = twin.paddle_ends(mine.targets, settings)
    marked = [abs(ends[:, :, at, at] - mine.discs[:, None, at] / 256).max(-1).argmin(1) for at in (0, -1)]
    assert ((marked[0] == marked[1]) == mine.labels).all()
    assert np.allclose(mine.turns, sum(np.take_along_axis(total, m[:, None], 1)[:, 0] for m in marked) / 2)


@pytest.mark.statistical(share=0.001)
def test_each_of_four_pairs_of_ends_is_equally_likely(judge):
    settings = PathfinderSettings(contour_length=3, n_distractors=0)
    mine = made(4000, settings)
    ends = mine.targets.ends(settings)
    marked = [(ends[:, :, at] == mine.discs[:, None, at]).all(-1).argmax(1) for at in (0, 1)]
    pairs = np.bincount(2 * marked[0] + marked[1], minlength=4)
    assert pairs[[0, 3]].sum() == mine.labels.sum()
    judge(binomial_p_values(pairs, 4000, 0.25), binomial_p_values(mine.labels.sum(), 4000, 0.5))


@any_settings
def test_pixels_are_means_of_samples(images, settings):
    mine = images[settings]
    paddles, _ = all_paddles(mine, settings)
    differences = np.array([
        abs(twin.drawing(paddles[i], mine.discs[i] / 256, settings) - mine.pixels[i]) for i in range(40)
    ])  # fmt: skip
    # Only samples on the very rim of a paddle may fall to the other side of it.
    assert (differences > 0.51).mean() < 0.02
    levels = np.arange(settings.antialias**2 + 1)
    grey = round(255 * settings.paddle_contrast)
    possible = (levels[:, None] * 255 + levels * grey) / settings.antialias**2
    assert set(np.unique(mine.pixels)) <= {int(x + 0.5) for x in possible.ravel()}
    assert mine.pixels.dtype == np.uint8 and mine.pixels.shape == (150, settings.size, settings.size)


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


def test_images_depend_on_the_draws_and_settings():
    first = made(3, HARD, 5)
    for other in (made(3, HARD, 6), made(3, replace(HARD, continuity=1.2), 5)):
        assert not (first.pixels == other.pixels).all()
    flat = first.pixels.reshape(3, -1)
    assert len(np.unique(flat, axis=0)) == 3


@pytest.mark.parametrize("n_images", [1, 299])
def test_as_many_as_asked_for(n_images):
    mine = made(n_images, SMALL)
    assert {len(getattr(mine, name)) for name in ("pixels", "labels", "marker_distances", "turns", "discs")} == {
        n_images
    }
    assert len(mine.targets.middles) == len(mine.distractors.directions) == n_images


@pytest.mark.bad_input
@pytest.mark.parametrize("n_images", [0, -1, 1.0])
def test_bad_numbers_are_refused(n_images):
    with pytest.raises(SbmtError, match="n_images ≥ 1"):
        made(n_images, HARD)
