"""Tests that Pathfinder's labels agree with the curves, as coordinates and as pixels."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from sbmt.errors import SbmtError
from sbmt.experiments.data import pathfinder as module
from sbmt.experiments.data.pathfinder import (
    ANTIALIAS,
    CONTRAST,
    LENGTH,
    MARGIN,
    PADDING,
    RADIUS,
    THICKNESS,
    PathfinderSettings,
    generate_images,
    target_ends,
)
from tests.statistics import binomial_p_values

HARD = PathfinderSettings()
SMALL = PathfinderSettings(size=22, contour_length=8, seed_distance=4.0, distractor_length=2, n_distractors=2)
SINGLE = PathfinderSettings(contour_length=2, distractor_length=1, n_distractors=12)
SETTINGS = {"hard": HARD, "small": SMALL, "single": SINGLE}
N_IMAGES = 50
UNITS, N_DIRECTIONS = 256, 64


def paddle_ends(middles, directions):
    """Returns both ends of every paddle in pixels, (images, paddles, 2, 2), from its middle and direction."""
    angles = directions * (2 * np.pi / N_DIRECTIONS)
    half = LENGTH / 2 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.stack([middles / UNITS - half, middles / UNITS + half], axis=-2)


def distance_to_segments(points, begins, ends):
    along = ends - begins
    share = ((points - begins) * along).sum(-1) / (along**2).sum(-1)
    return np.linalg.norm(points - begins - np.clip(share, 0, 1)[..., None] * along, axis=-1)


def segment_distances(segments):
    """Returns the distances between all pairs of n segments (n, 2, 2), computed between 33 points on each."""
    shares = np.linspace(0, 1, 33)[:, None]
    points = segments[:, :1] * (1 - shares) + segments[:, 1:] * shares  # n 33 2
    distances = cdist(points.reshape(-1, 2), points.reshape(-1, 2))
    return distances.reshape(len(points), 33, len(points), 33).min((1, 3))


def made(n_images, settings):
    return generate_images(n_images, np.random.default_rng([0, 0]), settings)


@pytest.fixture(scope="module", params=SETTINGS.values(), ids=SETTINGS)
def drawn(request):
    """Returns the settings, images, ends of all paddles ``(images, paddles, 2, 2)``, and the snake of each paddle."""
    settings = request.param
    images = made(N_IMAGES, settings)
    paddles = paddle_ends(images.middles, images.directions)
    snakes = [settings.contour_length] * 2 + [settings.distractor_length] * settings.n_distractors
    return settings, images, paddles, np.repeat(np.arange(len(snakes)), snakes)


def test_snakes_stay_clear_of_each_other_and_labels_say_whether_paddles_lead_from_disc_to_disc(drawn):
    settings, images, paddles, owners = drawn
    clear = np.sqrt((MARGIN + THICKNESS) ** 2 - 0.25**2) - 0.01  # a paddle is probed every half pixel
    place = np.arange(len(owners))
    is_neighbour = (owners[:, None] == owners) & (abs(place[:, None] - place) <= 1)
    joined = []
    for segments, discs in zip(paddles, images.discs / UNITS, strict=True):
        distances = segment_distances(segments)
        assert distances[~is_neighbour].min() >= clear
        gaps = distances[is_neighbour & (place[:, None] < place)]
        assert gaps.size == 0 or (MARGIN / 2**0.5 - 0.01 <= gaps.min() and gaps.max() <= MARGIN + 0.01)
        _, component = connected_components(distances <= MARGIN + 0.01)
        under = [distance_to_segments(disc, segments[:, 0], segments[:, 1]).argmin() for disc in discs]
        joined.append(int(component[under[0]] == component[under[1]]))
    assert joined == images.labels.tolist() and 10 < sum(joined) < 40
    edge = PADDING + THICKNESS / 2 - 0.2  # and cells are a quarter of a pixel wide
    assert edge <= paddles.min() and paddles.max() <= settings.size - edge


def test_discs_are_apart_and_touch_their_own_snake_alone(drawn):
    settings, images, paddles, owners = drawn
    ends = paddles[:, : 2 * settings.contour_length].reshape(N_IMAGES, 2, -1, 2, 2)
    for i, discs in enumerate(images.discs / UNITS):
        for disc, at_end in zip(discs, (0, -1), strict=True):
            (snake,) = np.flatnonzero(abs(ends[i, :, at_end, at_end] - disc).max(-1) < 0.02)
            others = paddles[i, owners != snake]
            gap = distance_to_segments(disc, others[:, 0], others[:, 1]).min()
            assert gap > RADIUS + THICKNESS / 2
        distance = np.hypot(*(discs[0] - discs[1]))
        assert images.marker_distances[i] == pytest.approx(distance, abs=1e-9)
        assert distance >= 2 * RADIUS + MARGIN - 0.01


@pytest.mark.statistical(share=0.001)
def test_each_of_four_pairs_of_ends_is_equally_likely(judge):
    settings = PathfinderSettings(contour_length=3, n_distractors=0)
    mine = made(4000, settings)
    ends = target_ends(mine.middles, mine.directions, settings.contour_length)
    marked = [(ends[:, :, at] == mine.discs[:, None, at]).all(-1).argmax(1) for at in (0, 1)]
    pairs = np.bincount(2 * marked[0] + marked[1], minlength=4)
    assert pairs[[0, 3]].sum() == mine.labels.sum()
    judge(binomial_p_values(pairs, 4000, 0.25), binomial_p_values(mine.labels.sum(), 4000, 0.5))


def test_pixels_are_means_of_samples(drawn):
    settings, images, *_ = drawn
    levels = np.arange(ANTIALIAS**2 + 1)
    possible = (levels[:, None] * 255 + levels * round(255 * CONTRAST)) / ANTIALIAS**2
    assert set(np.unique(images.pixels)) <= {int(x + 0.5) for x in possible.ravel()}
    assert images.pixels.dtype == np.uint8 and images.pixels.shape == (N_IMAGES, settings.size, settings.size)
    x, y = images.discs[:, 0].T // UNITS
    assert (images.pixels[np.arange(N_IMAGES), y, x] == 255).all()


def test_no_room(monkeypatch):
    monkeypatch.setattr(module, "MOST_FAILURES", 300)
    with pytest.raises(SbmtError, match=r"one of \d+ attempts succeeds, got PathfinderSettings.*: shorten the curves"):
        made(2, PathfinderSettings(size=16, contour_length=60))
