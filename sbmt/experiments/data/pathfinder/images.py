"""Pathfinder images, drawn after the description of the originals: snakes of paddles, and two discs on their ends."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sbmt.experiments.data.pathfinder.geometry import ONE, UNITS, Ints, tables
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.pathfinder.snakes import Snakes, generate_snakes

WHITE = 255


@dataclass(frozen=True, eq=False)
class PathfinderImages:
    """Images, and what is known of them."""

    pixels: NDArray[np.uint8]  # (images, size, size), grey levels
    labels: Ints  # (images,), 1 where the discs lie on the ends of one long snake
    marker_distances: NDArray[np.float64]  # (images,), in pixels, from disc to disc
    turns: NDArray[np.float64]  # (images,), the mean over the discs of how much the snakes under them wind, in radians
    targets: Snakes  # the two long snakes of each image
    distractors: Snakes  # the short snakes
    discs: Ints  # (images, 2, 2), on the beginning of a snake, then on the end of one


def generate_images(
    n_images: int, generator: np.random.Generator, settings: PathfinderSettings | None = None
) -> PathfinderImages:
    """Draws images with two long snakes, short ones, and two discs.

    One disc lies on the beginning of a long snake and the other on the end of one: of the same snake for label 1, of
    the other one for label 0. Which of the four possibilities is taken is drawn uniformly and after all snakes, so that
    the snakes alone say nothing about the label, nor do they together with one disc. But part of what can be seen
    without following a snake does: with the default settings, a table of 50,000 images predicts 52 % of other images
    correctly from the distance of the discs, and 66 % from that and the directions of the two paddles under them.
    (With 9 paddles: 57 % and 80 %. With 5, in images of 16 × 16 pixels: 58 % and 89 %.)

    Args:
        n_images: Number of images.
        generator: Source of the draws. Only its ``random()`` is used; the rest is arithmetic in whole numbers, so that
            images are the same on every machine.
        settings: None for the hardest settings of Long Range Arena.

    Raises:
        SbmtError: If the settings leave no room for the snakes.

    Source: Linsley et al., Learning long-range spatial dependencies with horizontal gated recurrent units (2018);
        Long Range Arena's settings. Here places and directions are rounded (see ``geometry``), and a disc has open
        space around it, so that it is clear whose end it marks. Images resemble the originals without being equal.

    Example:
        >>> images = generate_images(2, np.random.Generator(np.random.PCG64(0)))
        >>> images.pixels.shape, images.labels.tolist()
        ((2, 32, 32), [1, 0])
        >>> images.marker_distances.round(1).tolist()
        [12.4, 16.9]
    """
    settings = settings or PathfinderSettings()
    targets, distractors = generate_snakes(n_images, generator, settings)
    begins, labels = (generator.random((2, n_images)) < 0.5).astype(np.int64)
    finishes = np.where(labels, begins, 1 - begins)  # the snakes with a disc
    images, ends, turns = np.arange(n_images), targets.ends(settings), targets.total_turns()
    discs = np.stack([ends[images, begins, 0], ends[images, finishes, 1]], axis=1)
    return PathfinderImages(
        pixels=draw_images([targets, distractors], discs, settings),
        labels=labels,
        marker_distances=np.sqrt(((discs[:, 0] - discs[:, 1]) ** 2).sum(1)) / UNITS,
        turns=(turns[images, begins] + turns[images, finishes]) / 2,
        targets=targets,
        distractors=distractors,
        discs=discs,
    )


def draw_images(snakes: list[Snakes], discs: Ints, settings: PathfinderSettings) -> NDArray[np.uint8]:
    """Draws the paddles of some kinds of snakes, and white discs ``(images, discs, 2)`` over them.

    Every pixel is the rounded mean of its samples. A sample is as bright as the brightest thing that covers it.
    """
    n_images, n = len(discs), settings.antialias
    radius = max(math.hypot(settings.paddle_length, settings.paddle_thickness) / 2, settings.marker_radius)
    reach = math.ceil(n * radius) + 1  # samples around a middle that can be covered
    samples = np.zeros((n_images, *[n * settings.size + 2 * reach] * 2), dtype=np.uint8)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    window = np.stack([x, y], axis=-1)

    def draw(middles: Ints, is_covered: Callable[[Ints, Ints], NDArray[np.bool_]], level: int) -> None:
        """Draws one thing in each image: it covers samples at distances x and y, where samples are UNITS apart."""
        nearest = middles * n // UNITS
        x, y = np.moveaxis((nearest * UNITS + UNITS // 2 - middles * n)[:, None] + UNITS * window, -1, 0)
        image, place = np.nonzero(is_covered(x, y))
        at = nearest[image] + window[place] + reach
        samples[image, at[:, 1], at[:, 0]] = level

    for kind in snakes:
        middles, directions = kind.middles.reshape(n_images, -1, 2), kind.directions.reshape(n_images, -1)
        for paddle in range(directions.shape[1]):
            is_covered = partial(_is_in_paddle, settings, tables(settings).unit[directions[:, paddle]])
            draw(middles[:, paddle], is_covered, round(WHITE * settings.paddle_contrast))
    for disc in range(discs.shape[1]):
        draw(discs[:, disc], lambda x, y: x**2 + y**2 <= round(UNITS * n * settings.marker_radius) ** 2, WHITE)
    inner = samples[:, reach:-reach, reach:-reach].reshape(-1, settings.size, n, settings.size, n)
    return ((inner.sum((2, 4), dtype=np.int64) + n * n // 2) // n**2).astype(np.uint8)


def _is_in_paddle(settings: PathfinderSettings, unit: Ints, x: Ints, y: Ints) -> NDArray[np.bool_]:
    """Whether a paddle that points into a direction, one for each image, covers samples around its middle."""
    unit_x, unit_y = unit.T[:, :, None]
    along, across = x * unit_x + y * unit_y, y * unit_x - x * unit_y
    half_length, half_thickness = (
        round(ONE * UNITS * settings.antialias * extent / 2)
        for extent in (settings.paddle_length, settings.paddle_thickness)
    )
    # One long side belongs to it and the other does not, or a paddle as thick as a sample could cover two in a row.
    return (abs(along) <= half_length) & (-half_thickness <= across) & (across < half_thickness)
