"""Pathfinder images, drawn after the description of the originals: snakes of paddles, and two discs on their ends."""

import math
from dataclasses import dataclass

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
    canvas = _Canvas(len(discs), settings)
    for kind in snakes:
        places = kind.middles.reshape(len(discs), -1, 2)
        directions = kind.directions.reshape(len(discs), -1)
        for paddle in range(directions.shape[1]):
            canvas.draw_paddle(places[:, paddle], directions[:, paddle])
    for disc in range(discs.shape[1]):
        canvas.draw_disc(discs[:, disc])
    return canvas.pixels()


class _Canvas:
    """The samples of many images; its methods draw one thing in each image."""

    def __init__(self, n_images: int, settings: PathfinderSettings) -> None:
        self.settings, self.n_images = settings, n_images
        radius = max(math.hypot(settings.paddle_length, settings.paddle_thickness) / 2, settings.marker_radius)
        self.reach = math.ceil(settings.antialias * radius) + 1  # samples around a middle that can be covered
        self.width = settings.antialias * settings.size + 2 * self.reach
        self.samples = np.zeros(n_images * self.width**2, dtype=np.uint8)
        y, x = np.mgrid[-self.reach : self.reach + 1, -self.reach : self.reach + 1].reshape(2, -1)
        self.window = np.stack([x, y], axis=-1)

    def draw_paddle(self, middles: Ints, directions: Ints) -> None:
        """Draws a rectangle in each image."""
        settings, unit = self.settings, tables(self.settings).unit[directions][:, None]
        (x, y), samples = self._around(middles)
        along, across = x * unit[..., 0] + y * unit[..., 1], y * unit[..., 0] - x * unit[..., 1]
        half_length, half_thickness = (
            round(ONE * UNITS * settings.antialias * extent / 2)
            for extent in (settings.paddle_length, settings.paddle_thickness)
        )
        # One long side belongs to it and the other does not, or a paddle as thick as a sample could cover two in a row.
        is_covered = (abs(along) <= half_length) & (-half_thickness <= across) & (across < half_thickness)
        self.samples[samples[is_covered]] = round(WHITE * settings.paddle_contrast)

    def draw_disc(self, middles: Ints) -> None:
        """Draws a disc in each image."""
        (x, y), samples = self._around(middles)
        is_covered = x**2 + y**2 <= round(UNITS * self.settings.antialias * self.settings.marker_radius) ** 2
        self.samples[samples[is_covered]] = WHITE

    def _around(self, middles: Ints) -> tuple[tuple[Ints, Ints], Ints]:
        """Samples near a middle: their distances from it, where samples are UNITS apart, and their numbers."""
        middles = middles * self.settings.antialias
        nearest = middles // UNITS
        from_middle = (nearest * UNITS + UNITS // 2 - middles)[:, None] + UNITS * self.window
        at = nearest[:, None] + self.window + self.reach  # (images, window, 2)
        samples = (np.arange(self.n_images)[:, None] * self.width + at[..., 1]) * self.width + at[..., 0]
        return (from_middle[..., 0], from_middle[..., 1]), samples

    def pixels(self) -> NDArray[np.uint8]:
        """The mean of each pixel's samples."""
        size, n = self.settings.size, self.settings.antialias
        whole = self.samples.reshape(self.n_images, self.width, self.width)
        inner = whole[:, self.reach : -self.reach, self.reach : -self.reach].reshape(-1, size, n, size, n)
        return ((inner.sum((2, 4), dtype=np.int64) + n * n // 2) // n**2).astype(np.uint8)
