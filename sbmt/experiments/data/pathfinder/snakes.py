"""Pathfinder's snakes: chains of paddles that grow at random and keep apart from each other, in many images at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.pathfinder.geometry import CELL_UNITS, N_DIRECTIONS, TURNS, UNITS, Ints, tables, vectors
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings

FREE, CLOSED = 0, -1
"""Owners of cells that belong to no paddle: open ones, and those that none may enter, such as along the edges."""


class OccupiedMap:
    """The paddle that owns each cell and excludes others from it, in many images. A paddle is a positive number."""

    def __init__(self, n_images: int, settings: PathfinderSettings) -> None:
        self.tables = tables(settings)
        width, frame = self.tables.width, self.tables.frame
        middles = np.arange(width - 2 * frame) * CELL_UNITS + CELL_UNITS // 2
        edge = round(UNITS * (settings.padding + settings.paddle_thickness / 2))
        inside = frame + np.flatnonzero((middles >= edge) & (middles <= settings.size * UNITS - edge))
        owners = np.full((n_images, width, width), CLOSED, dtype=np.int16)
        owners[:, inside[:, None], inside] = FREE
        self._owners = owners.ravel()

    def has_room(self, images: Ints, places: Ints, beside: int) -> NDArray[np.bool_]:
        """Whether all places ``(images, paddles, places, 2)`` are open, or belong to the one paddle ``beside``."""
        owners = self._owners[self._cells(images, places)]
        return np.logical_and.reduce((owners == FREE) | (owners == beside), axis=-1)

    def claim(self, images: Ints, places: Ints, offsets: Ints, owner: int, rival: int | None = None) -> None:
        """Gives open cells to a paddle; they are ``offsets`` from those of the places, one for each image.

        A snake may continue beside its last paddle, that is, through that paddle's cells. If the other snake claims a
        cell of ``rival``, the last paddle of a snake that is still growing, neither may enter it any more.
        """
        cells = self._cells(images, places)[:, None] + offsets
        before = self._owners[cells]
        self._owners[cells[before == FREE]] = owner
        if rival is not None:
            self._owners[cells[before == rival]] = CLOSED

    def release(self, images: Ints, places: Ints, offsets: Ints, owner: int) -> None:
        """Opens the cells that belong to a paddle; see :meth:`claim`."""
        cells = self._cells(images, places)[:, None] + offsets
        self._owners[cells[self._owners[cells] == owner]] = FREE

    def _cells(self, images: Ints, places: Ints) -> Ints:
        width, frame = self.tables.width, self.tables.frame
        cells = places // CELL_UNITS
        first = (images * width + frame) * width + frame
        return cells[..., 1] * width + cells[..., 0] + first.reshape(-1, *[1] * (places.ndim - 2))


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

    @classmethod
    def empty(cls, n_images: int, n_snakes: int, n_paddles: int) -> "Snakes":
        """Space for snakes that have not grown yet."""
        shape = (n_images, n_snakes, n_paddles)
        return cls(np.zeros((*shape, 2), dtype=np.int64), np.zeros(shape, dtype=np.int64))

    def take(self, images: Ints) -> "Snakes":
        """The snakes of some images."""
        return Snakes(self.middles[images], self.directions[images])

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


class _Growth:
    """Snakes of one kind while they grow; two that take turns are a race. Methods act on the given images."""

    def __init__(
        self, occupied: OccupiedMap, snakes: Snakes, first_owner: int, generator: np.random.Generator, is_race: bool
    ) -> None:
        self.occupied, self.snakes, self.generator, self.is_race = occupied, snakes, generator, is_race
        self.first_owner, self.n_paddles = first_owner, snakes.directions.shape[2]
        self.tables = occupied.tables

    def owner(self, snake: int, paddle: int) -> int:
        """The number of a paddle in the map; the paddle before it in the snake has the number before it."""
        return self.first_owner + snake * self.n_paddles + paddle

    def rival(self, snake: int, paddle: int) -> int | None:
        """The last paddle of the other snake, if two take turns."""
        if not self.is_race or (snake, paddle) == (0, 0):
            return None
        return self.owner(1 - snake, paddle if snake else paddle - 1)

    def put(self, images: Ints, snake: int, paddle: int, middles: Ints, directions: Ints) -> None:
        """Adds a paddle."""
        self.snakes.middles[images, snake, paddle] = middles
        self.snakes.directions[images, snake, paddle] = directions
        self.claim(images, snake, paddle, middles, self.tables.paddle_cells[directions])

    def claim(self, images: Ints, snake: int, paddle: int, places: Ints, offsets: Ints) -> None:
        """Excludes others from the cells of a paddle, or from those where a disc may be drawn on it."""
        self.occupied.claim(images, places, offsets, self.owner(snake, paddle), self.rival(snake, paddle))

    def extend(self, images: Ints, snake: int, paddle: int, probes: Ints) -> Ints:
        """Adds a paddle in a direction drawn among those with room; returns the images in which there was one."""
        before = self.snakes.directions[images, snake, paddle - 1]
        pivots = self.snakes.middles[images, snake, paddle - 1] + self.tables.half[before]
        directions = (before[:, None] + TURNS) % N_DIRECTIONS
        places = pivots[:, None, None] + probes[directions]  # (images, turns, probes, 2)
        has_room = self.occupied.has_room(images, places, self.owner(snake, paddle - 1))
        sums = (has_room * self.tables.weights).cumsum(1)
        mark = (self.generator.random(len(images)) * sums[:, -1]).astype(np.int64)
        chosen = (sums <= mark[:, None]).sum(1)
        (able,) = np.nonzero(sums[:, -1])
        images, taken = images[able], directions[able, chosen[able]]
        self.put(images, snake, paddle, pivots[able] + self.tables.half[taken], taken)
        return images

    def remove(self, images: Ints, snake: int, n_paddles: int) -> None:
        """Removes the first paddles of a snake."""
        for paddle in range(n_paddles):
            middles = self.snakes.middles[images, snake, paddle]
            cells = self.tables.paddle_cells[self.snakes.directions[images, snake, paddle]]
            self.occupied.release(images, middles, cells, self.owner(snake, paddle))


def _attempt(n_attempts: int, generator: np.random.Generator, settings: PathfinderSettings) -> tuple[Snakes, Snakes]:
    """The long and the short snakes of the attempts that succeed."""
    n_distractors, distractor_length = settings.distractors()
    occupied = OccupiedMap(n_attempts, settings)
    targets = Snakes.empty(n_attempts, 2, settings.contour_length)
    distractors = Snakes.empty(n_attempts, n_distractors, distractor_length)
    images = _grow_targets(_Growth(occupied, targets, 1, generator, is_race=True), settings)
    growth = _Growth(occupied, distractors, 1 + 2 * settings.contour_length, generator, is_race=False)
    for snake in range(n_distractors):
        without = images
        for _ in range(_TRIES):
            if len(without):
                without = np.setdiff1d(without, _grow_distractor(growth, without, snake, settings), assume_unique=True)
        images = np.setdiff1d(images, without, assume_unique=True)
    return targets.take(images), distractors.take(images)


def _grow_targets(growth: _Growth, settings: PathfinderSettings) -> Ints:
    """Grows both long snakes; returns the images in which that succeeded."""
    t = growth.tables
    images = _begin_targets(growth, settings)
    last = settings.contour_length - 1
    for paddle in range(1, last + 1):
        for snake in range(2):
            images = growth.extend(images, snake, paddle, t.last_probes if paddle == last else t.probes)
            if paddle == last:
                ends = growth.snakes.take(images).ends(settings)[:, snake, 1]
                growth.claim(images, snake, last, ends, t.marker_cells)
    ends = growth.snakes.take(images).ends(settings).reshape(-1, 4, 2)
    one, other = np.triu_indices(4, 1)
    squares = ((ends[:, one] - ends[:, other]) ** 2).sum(-1)
    least = round(UNITS * (2 * settings.marker_radius + settings.paddle_margin))
    return images[(squares >= least**2).all(1)]


def _begin_targets(growth: _Growth, settings: PathfinderSettings) -> Ints:
    """Places the first paddles, each with its outer end on a seed; returns the images in which there was room."""
    t, side = growth.tables, settings.size * UNITS
    images = np.arange(len(growth.snakes.directions))
    draws = growth.generator.random((5, len(images)))
    centres = (draws[:2].T * side).astype(np.int64)
    apart, *directions = (draws[2:] * N_DIRECTIONS).astype(np.int64)
    offsets = vectors(UNITS * settings.seed_distance / 2)[apart]
    seeds = np.stack([centres - offsets, centres + offsets])
    images = images[((seeds >= 0) & (seeds < side)).all((0, 2))]
    for snake in range(2):
        taken, places = directions[snake][images], seeds[snake, images]
        pivots = places + t.tip[taken] - t.half[taken]
        probes = (pivots[:, None] + t.first_probes[taken])[:, None]  # (images, 1, probes, 2)
        able = growth.occupied.has_room(images, probes, FREE)[:, 0]
        images, taken, places = images[able], taken[able], places[able]
        growth.put(images, snake, 0, places + t.tip[taken], taken)
        growth.claim(images, snake, 0, places, t.marker_cells)
    return images


def _grow_distractor(growth: _Growth, images: Ints, snake: int, settings: PathfinderSettings) -> Ints:
    """Grows one short snake; returns the images in which that succeeded, and leaves no trace in the others."""
    t = growth.tables
    draws = growth.generator.random((len(images), _PLACES, 3))
    middles = (draws[..., :2] * settings.size * UNITS).astype(np.int64)
    directions = (draws[..., 2] * N_DIRECTIONS).astype(np.int64)
    probes = (middles - t.half[directions])[:, :, None] + t.probes[directions]  # (images, _PLACES, probes, 2)
    has_room = growth.occupied.has_room(images, probes, FREE)
    able, chosen = np.arange(len(images)), has_room.argmax(1)  # the first place with room, if there is one
    able = able[has_room[able, chosen]]
    images, chosen = images[able], chosen[able]
    growth.put(images, snake, 0, middles[able, chosen], directions[able, chosen])
    for paddle in range(1, growth.n_paddles):
        before = images
        images = growth.extend(before, snake, paddle, t.probes)
        growth.remove(np.setdiff1d(before, images, assume_unique=True), snake, paddle)
    return images
