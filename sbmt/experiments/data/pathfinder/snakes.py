"""Pathfinder's snakes: chains of paddles that grow at random and keep apart from each other, in many images at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.pathfinder.geometry import CELL_UNITS, N_DIRECTIONS, TURNS, UNITS, Ints, tables, vectors
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings

_AT_ONCE = 256  # largest number of attempts at once,
_MOST_CELLS = 1 << 24  # and of cells of their maps, to limit memory
_MOST_FAILURES = 4096  # failed attempts in a row before settings count as impossible
_TRIES = 8  # attempts at each distractor before an image is given up
_PLACES = 8  # places where a distractor may begin, per attempt; the first free one is taken


@dataclass(frozen=True, eq=False)
class Snakes:
    """Snakes of equal length, the same number in each image."""

    middles: Ints  # (images, snakes, paddles, 2), the middle of each paddle
    directions: Ints  # (images, snakes, paddles), from the snake's beginning to its end

    def ends(self, settings: PathfinderSettings) -> Ints:
        """The outer ends of each snake's first and last paddle, ``(images, snakes, 2, 2)``."""
        tip = tables(settings).tip
        first = self.middles[:, :, 0] - tip[self.directions[:, :, 0]]
        return np.stack([first, self.middles[:, :, -1] + tip[self.directions[:, :, -1]]], axis=2)

    def total_turns(self) -> NDArray[np.float64]:
        """Sum of the absolute values of each snake's turns in radians, ``(images, snakes)``."""
        steps = (np.diff(self.directions, axis=2) + N_DIRECTIONS // 2) % N_DIRECTIONS - N_DIRECTIONS // 2
        return abs(steps).sum(2) * (2 * np.pi / N_DIRECTIONS)


def generate_snakes(
    n_images: int, generator: np.random.Generator, settings: PathfinderSettings
) -> tuple[Snakes, Snakes]:
    """Draws two long snakes and some short ones for each image.

    The long ones begin ``seed_distance`` apart, at a place and in directions drawn uniformly, and take turns to grow by
    one paddle. Among the directions in which the next paddle has room, a turn t has weight
    cos²(min(continuity |t|, π/2)). An image is started again if a snake cannot continue, an end has no room for a disc,
    or two ends are so close that discs on them would touch. The short snakes follow one by one in the same way; if one
    of them fails, only that one is tried again.

    Attempts are made for all images together, so that the result depends on ``n_images`` too. With the default
    settings one attempt in nine gives an image.

    Returns:
        Long snakes and short ones.

    Raises:
        SbmtError: If 4096 attempts in a row failed.
    """
    check_sizes(n_images=n_images)
    kept: list[tuple[Snakes, Snakes]] = []
    n_kept = n_failures = 0
    at_once = min(_AT_ONCE, 1 + _MOST_CELLS // tables(settings).width ** 2)
    while n_kept < n_images:
        n_attempts = at_once if n_failures else min(at_once, 32 + 4 * (n_images - n_kept))
        kept.append(_attempt(n_attempts, generator, settings))
        n_new = len(kept[-1][0].middles)
        n_kept += n_new
        n_failures = 0 if n_new else n_failures + n_attempts
        if n_failures >= _MOST_FAILURES:
            expected = f"settings that one of {n_failures} attempts satisfies"
            raise SbmtError(expected, settings, "shorten the snakes, or make images larger")
    targets, distractors = (
        Snakes(
            np.concatenate([some.middles for some in part])[:n_images],
            np.concatenate([some.directions for some in part])[:n_images],
        )
        for part in zip(*kept, strict=True)
    )
    return targets, distractors


_FREE, _CLOSED = -1, -2
"""Owners of cells that belong to no paddle: open ones, and those that none may enter, such as along the edges."""


class _Attempts:
    """Images while their snakes grow, and a map of each: which paddle excludes others from a cell.

    Paddles have the same numbers in all images: first those of one long snake, then those of the other, then those of
    the short snakes. Methods act on the given images.
    """

    def __init__(self, n_images: int, generator: np.random.Generator, settings: PathfinderSettings) -> None:
        self.generator, self.settings, self.tables = generator, settings, tables(settings)
        n_distractors, distractor_length = settings.distractors()
        n_paddles = 2 * settings.contour_length + n_distractors * distractor_length
        self.middles = np.zeros((n_images, n_paddles, 2), dtype=np.int64)
        self.directions = np.zeros((n_images, n_paddles), dtype=np.int64)
        width, frame = self.tables.width, self.tables.frame
        middles = np.arange(width - 2 * frame) * CELL_UNITS + CELL_UNITS // 2
        edge = round(UNITS * (settings.padding + settings.paddle_thickness / 2))
        inside = frame + np.flatnonzero((middles >= edge) & (middles <= settings.size * UNITS - edge))
        owners = np.full((n_images, width, width), _CLOSED, dtype=np.int16)
        owners[:, inside[:, None], inside] = _FREE
        self._owners = owners.ravel()

    def snakes(self, images: Ints) -> tuple[Snakes, Snakes]:
        """The long and the short snakes."""
        n_long = 2 * self.settings.contour_length
        targets, distractors = (
            Snakes(
                self.middles[images, part].reshape(len(images), *shape, 2),
                self.directions[images, part].reshape(len(images), *shape),
            )
            for part, shape in (
                (slice(n_long), (2, self.settings.contour_length)),
                (slice(n_long, None), self.settings.distractors()),
            )
        )
        return targets, distractors

    def has_room(self, images: Ints, places: Ints, beside: int = _FREE) -> NDArray[np.bool_]:
        """Whether all places ``(images, paddles, places, 2)`` are open, or belong to the one paddle ``beside``."""
        owners = self._owners[self._cells(images, places)]
        return np.logical_and.reduce((owners == _FREE) | (owners == beside), axis=-1)

    def claim(self, images: Ints, paddle: int, places: Ints, offsets: Ints, rival: int | None = None) -> None:
        """Gives open cells to a paddle; they are ``offsets`` from those of the places, one for each image.

        A snake may continue beside its last paddle, that is, through that paddle's cells. If the other snake claims a
        cell of ``rival``, the last paddle of a snake that is still growing, neither may enter it any more.
        """
        cells = self._cells(images, places)[:, None] + offsets
        before = self._owners[cells]
        self._owners[cells[before == _FREE]] = paddle
        if rival is not None:
            self._owners[cells[before == rival]] = _CLOSED

    def put(self, images: Ints, paddle: int, middles: Ints, directions: Ints, rival: int | None = None) -> None:
        """Adds a paddle."""
        self.middles[images, paddle] = middles
        self.directions[images, paddle] = directions
        self.claim(images, paddle, middles, self.tables.paddle_cells[directions], rival)

    def extend(self, images: Ints, paddle: int, probes: Ints, rival: int | None = None) -> Ints:
        """Adds a paddle in a direction drawn among those with room; returns the images in which there was one."""
        before = self.directions[images, paddle - 1]
        pivots = self.middles[images, paddle - 1] + self.tables.half[before]
        directions = (before[:, None] + TURNS) % N_DIRECTIONS
        places = pivots[:, None, None] + probes[directions]  # (images, turns, probes, 2)
        sums = (self.has_room(images, places, paddle - 1) * self.tables.weights).cumsum(1)
        mark = (self.generator.random(len(images)) * sums[:, -1]).astype(np.int64)
        chosen = (sums <= mark[:, None]).sum(1)
        (able,) = np.nonzero(sums[:, -1])
        images, taken = images[able], directions[able, chosen[able]]
        self.put(images, paddle, pivots[able] + self.tables.half[taken], taken, rival)
        return images

    def remove(self, images: Ints, paddles: range) -> None:
        """Removes paddles, and opens the cells that belong to them."""
        for paddle in paddles:
            offsets = self.tables.paddle_cells[self.directions[images, paddle]]
            cells = self._cells(images, self.middles[images, paddle])[:, None] + offsets
            self._owners[cells[self._owners[cells] == paddle]] = _FREE

    def _cells(self, images: Ints, places: Ints) -> Ints:
        width, frame = self.tables.width, self.tables.frame
        cells = places // CELL_UNITS
        first = (images * width + frame) * width + frame
        return cells[..., 1] * width + cells[..., 0] + first.reshape(-1, *[1] * (places.ndim - 2))


def _attempt(n_attempts: int, generator: np.random.Generator, settings: PathfinderSettings) -> tuple[Snakes, Snakes]:
    """The long and the short snakes of the attempts that succeed."""
    attempts = _Attempts(n_attempts, generator, settings)
    images = _grow_targets(attempts, _begin_targets(attempts))
    n_distractors, length = settings.distractors()
    for snake in range(n_distractors):
        first, without = 2 * settings.contour_length + snake * length, images
        for _ in range(_TRIES):
            if len(without):
                grown = _grow_distractor(attempts, without, range(first, first + length))
                without = np.setdiff1d(without, grown, assume_unique=True)
        images = np.setdiff1d(images, without, assume_unique=True)
    return attempts.snakes(images)


def _begin_targets(attempts: _Attempts) -> Ints:
    """Places the first paddles, each with its outer end on a seed; returns the images in which there was room."""
    t, settings, side = attempts.tables, attempts.settings, attempts.settings.size * UNITS
    images = np.arange(len(attempts.directions))
    draws = attempts.generator.random((5, len(images)))
    centres = (draws[:2].T * side).astype(np.int64)
    apart, *directions = (draws[2:] * N_DIRECTIONS).astype(np.int64)
    offsets = vectors(UNITS * settings.seed_distance / 2)[apart]
    seeds = np.stack([centres - offsets, centres + offsets])
    images = images[((seeds >= 0) & (seeds < side)).all((0, 2))]
    for snake, rival in enumerate((None, 0)):
        taken, places = directions[snake][images], seeds[snake, images]
        pivots = places + t.tip[taken] - t.half[taken]
        probes = (pivots[:, None] + t.first_probes[taken])[:, None]  # (images, 1, probes, 2)
        able = attempts.has_room(images, probes)[:, 0]
        images, taken, places = images[able], taken[able], places[able]
        paddle = snake * settings.contour_length
        attempts.put(images, paddle, places + t.tip[taken], taken, rival)
        attempts.claim(images, paddle, places, t.marker_cells, rival)
    return images


def _grow_targets(attempts: _Attempts, images: Ints) -> Ints:
    """Grows both long snakes, which have begun; returns the images in which that succeeded."""
    t, settings, length = attempts.tables, attempts.settings, attempts.settings.contour_length
    for number in range(1, length):
        is_last = number == length - 1
        for paddle, rival in ((number, length + number - 1), (length + number, number)):
            images = attempts.extend(images, paddle, t.last_probes if is_last else t.probes, rival)
            if is_last:
                ends = attempts.middles[images, paddle] + t.tip[attempts.directions[images, paddle]]
                attempts.claim(images, paddle, ends, t.marker_cells, rival)
    ends = attempts.snakes(images)[0].ends(settings).reshape(-1, 4, 2)
    one, other = np.triu_indices(4, 1)
    squares = ((ends[:, one] - ends[:, other]) ** 2).sum(-1)
    least = round(UNITS * (2 * settings.marker_radius + settings.paddle_margin))
    return images[(squares >= least**2).all(1)]


def _grow_distractor(attempts: _Attempts, images: Ints, paddles: range) -> Ints:
    """Grows one short snake; returns the images in which that succeeded, and leaves no trace in the others."""
    t = attempts.tables
    draws = attempts.generator.random((len(images), _PLACES, 3))
    middles = (draws[..., :2] * attempts.settings.size * UNITS).astype(np.int64)
    directions = (draws[..., 2] * N_DIRECTIONS).astype(np.int64)
    probes = (middles - t.half[directions])[:, :, None] + t.probes[directions]  # (images, _PLACES, probes, 2)
    has_room = attempts.has_room(images, probes)
    able, chosen = np.arange(len(images)), has_room.argmax(1)  # the first place with room, if there is one
    able = able[has_room[able, chosen]]
    images, chosen = images[able], chosen[able]
    attempts.put(images, paddles[0], middles[able, chosen], directions[able, chosen])
    for paddle in paddles[1:]:
        before = images
        images = attempts.extend(before, paddle, t.probes)
        attempts.remove(np.setdiff1d(before, images, assume_unique=True), range(paddles[0], paddle))
    return images
