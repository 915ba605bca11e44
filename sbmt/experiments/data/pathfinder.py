"""Pathfinder: do two discs lie on the same dashed curve? Integer arithmetic makes images identical on all machines.

Source: Linsley et al., Learning long-range spatial dependencies with horizontal gated recurrent units (2018), with the
settings of Long Range Arena. Unlike there, space is left around each disc, so that it clearly marks one end of a curve.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.source import Examples, Ints, Source, tenths

# A snake is a curve drawn as a row of dashes, the paddles. Sizes are in pixels, as documented by Long Range Arena.
PADDING = 1.0  # width of the border that paddles may not enter
MARGIN = 1.0  # gap between paddles within a snake, and minimum gap between snakes
LENGTH, THICKNESS = 2.0, 0.5  # size of a paddle
RADIUS = 1.5  # radius of the two discs
ANTIALIAS = 2  # samples per pixel in each dimension
WHITE, CONTRAST = 255, 0.75  # grey level of the discs, and that of the paddles as a fraction of it

UNITS, CELLS = 256, 4  # units per pixel, and cells of the occupancy map per pixel, in each dimension
N_DIRECTIONS = 64  # number of directions in which paddles may point; direction i has the angle 2π i / 64
ONE = 4096  # length of direction vectors, and maximum weight of a turn
TURNS = np.arange(-N_DIRECTIONS // 4, N_DIRECTIONS // 4 + 1)  # a sharper turn would reverse the snake
TURN_WEIGHTS = np.array([round(ONE * math.cos(2 * math.pi * t / N_DIRECTIONS) ** 2) for t in TURNS.tolist()])
# The centre lines of paddles in different snakes are at least margin + thickness apart, plus √2/4 pixels to allow for
# rounding to cells. Half a margin around each disc stays free.
CLEARANCE = MARGIN + THICKNESS + math.sqrt(2) / CELLS
CIRCLE = RADIUS - (THICKNESS + MARGIN) / 2
FRAME = math.ceil((MARGIN + LENGTH + 2 * (CIRCLE + CLEARANCE) + 1) * CELLS)  # width of the map's border in cells

AT_ONCE = 256  # number of images attempted together
MOST_FAILURES = 4096  # consecutive failures after which the settings are considered impossible
TRIES = 8  # attempts at each short snake before an image is abandoned
PLACES = 8  # candidate positions for the start of a short snake, per attempt; the first free one is used
SHARD_SIZE = 1000  # number of images drawn from one random stream


@dataclass(frozen=True)
class PathfinderSettings:
    """Settings for making Pathfinder images; the defaults are those of Long Range Arena's hardest 32 × 32 images."""

    size: int = 32  # width and height of an image in pixels
    contour_length: int = 14  # paddles in each of the two long snakes
    distractor_length: int = 4  # paddles in each short snake
    n_distractors: int = 5  # number of short snakes
    seed_distance: float = 7.0  # distance in pixels between the starting points of the two long snakes

    def __post_init__(self) -> None:
        check_sizes(size=self.size, distractor_length=self.distractor_length, n_distractors=self.n_distractors + 1)
        if self.contour_length < 2:
            raise SbmtError("contour_length ≥ 2", self.contour_length, "give each curve at least two paddles")
        if not 2 * RADIUS + MARGIN <= self.seed_distance < math.inf:
            raise SbmtError(f"seed_distance ≥ {2 * RADIUS + MARGIN}", self.seed_distance, "move the discs apart")


def vectors(length: float) -> Ints:
    """Returns vectors of the given length in all directions, ``(directions, 2)``, rounded to be the same everywhere."""
    angles = [2 * math.pi * i / N_DIRECTIONS for i in range(N_DIRECTIONS)]
    return np.array([[round(length * math.cos(a)), round(length * math.sin(a))] for a in angles], dtype=np.int64)


TIP = vectors(UNITS * LENGTH / 2)  # vectors by direction from the middle of a paddle to its end
HALF = vectors(UNITS * (MARGIN + LENGTH) / 2)  # from a pivot to the middle of a paddle, or from there to a pivot
# PROBES lead from a pivot to points along the next paddle, at most half a pixel apart. FIRST_PROBES and LAST_PROBES add
# points around the start or the end of the paddle, where a disc may lie.
PROBES = np.stack([vectors(UNITS * (MARGIN / 2 + LENGTH * i / 4)) for i in range(5)], axis=1)
_AROUND = vectors(UNITS * CIRCLE)[None, :: N_DIRECTIONS // 8]
FIRST_PROBES, LAST_PROBES = (np.concatenate([PROBES, end[:, None] + _AROUND], 1) for end in (HALF - TIP, HALF + TIP))


def _cells_within(radius: float, length: float, width: int) -> Ints:
    """Returns one row of cells per direction: those within a radius of a segment, padded by repeating the first."""
    reach, side = math.ceil((radius + length / 2) * CELLS), UNITS // CELLS
    y, x = side * np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    rows = []
    for unit in vectors(float(ONE)):
        along, across = x * unit[0] + y * unit[1], y * unit[0] - x * unit[1]
        beyond = np.maximum(abs(along) - round(ONE * UNITS * length / 2), 0)
        rows.append((y // side * width + x // side)[beyond**2 + across**2 <= round(ONE * UNITS * radius) ** 2])
    longest = max(map(len, rows))
    return np.stack([np.concatenate([row, np.full(longest - len(row), row[0])]) for row in rows]).astype(np.int64)


_FREE, _CLOSED = -1, -2  # mark open cells, and cells closed to all paddles, such as those along the edges


class _Attempts:
    """A batch of images in which snakes grow, and a map from each cell to the paddle for which it is reserved.

    A snake is a chain of pivots joined by paddles. Methods that add paddles return the images in which they succeeded.
    """

    def __init__(self, n_images: int, generator: np.random.Generator, settings: PathfinderSettings) -> None:
        self.generator, self.settings = generator, settings
        n_paddles = 2 * settings.contour_length + settings.n_distractors * settings.distractor_length
        self.middles = np.zeros((n_images, n_paddles, 2), dtype=np.int64)
        self.directions = np.zeros((n_images, n_paddles), dtype=np.int64)
        self.width = settings.size * CELLS + 2 * FRAME
        self.paddle_cells = _cells_within(CLEARANCE, LENGTH, self.width)  # cells that a paddle reserves
        self.disc_cells = _cells_within(CLEARANCE + CIRCLE, 0.0, self.width)[:1]
        edge = FRAME + math.ceil((PADDING + THICKNESS / 2) * CELLS - 0.5)  # first cell far enough from the edge
        owners = np.full((n_images, self.width, self.width), _CLOSED, dtype=np.int32)
        owners[:, edge:-edge, edge:-edge] = _FREE
        self.owners = owners.reshape(n_images, -1)

    def run(self) -> tuple[Ints, Ints]:
        """Returns the middles and directions of all paddles in the images in which every snake reached full length."""
        images = self.grow_targets(self.begin_targets())
        for first in range(2 * self.settings.contour_length, self.middles.shape[1], self.settings.distractor_length):
            without = images
            for _ in range(TRIES):
                without = np.setdiff1d(without, self.grow_distractor(without, first))
            images = np.setdiff1d(images, without)
        return self.middles[images], self.directions[images]

    def begin_targets(self) -> Ints:
        """Places the first paddle of each long snake, with its outer end on a seed point."""
        side = self.settings.size * UNITS
        images = np.arange(len(self.directions))
        draws = self.generator.random((5, len(images)))
        centres = (draws[:2].T * side).astype(np.int64)
        apart, *directions = (draws[2:] * N_DIRECTIONS).astype(np.int64)
        offsets = vectors(UNITS * self.settings.seed_distance / 2)[apart]
        seeds = np.stack([centres - offsets, centres + offsets])
        images = images[((seeds >= 0) & (seeds < side)).all((0, 2))]
        for snake, rival in enumerate((_CLOSED, 0)):
            taken, places = directions[snake][images], seeds[snake, images]
            probes = (places + TIP[taken] - HALF[taken])[:, None] + FIRST_PROBES[taken]
            able = self.has_room(images, probes[:, None])[:, 0]
            images, taken, places = images[able], taken[able], places[able]
            paddle = snake * self.settings.contour_length
            self.put(images, paddle, places + TIP[taken], taken, rival)
            self.claim(images, paddle, places, self.disc_cells, rival)
        return images

    def grow_targets(self, images: Ints) -> Ints:
        """Grows both long snakes from their first paddles, adding one paddle to each in turn."""
        length = self.settings.contour_length
        for number in range(1, length):
            is_last = number == length - 1
            for paddle, rival in ((number, length + number - 1), (length + number, number)):
                images = self.extend(images, paddle, LAST_PROBES if is_last else PROBES, rival)
                if is_last:
                    ends = self.middles[images, paddle] + TIP[self.directions[images, paddle]]
                    self.claim(images, paddle, ends, self.disc_cells, rival)
        ends = target_ends(self.middles[images], self.directions[images], length).reshape(-1, 4, 2)
        one, other = np.triu_indices(4, 1)
        squares = ((ends[:, one] - ends[:, other]) ** 2).sum(-1)
        return images[(squares >= round(UNITS * (2 * RADIUS + MARGIN)) ** 2).all(1)]

    def grow_distractor(self, images: Ints, first: int) -> Ints:
        """Grows one short snake in each image, and restores the images in which this fails."""
        before = self.owners[images]
        draws = self.generator.random((len(images), PLACES, 3))
        middles = (draws[..., :2] * self.settings.size * UNITS).astype(np.int64)
        directions = (draws[..., 2] * N_DIRECTIONS).astype(np.int64)
        probes = (middles - HALF[directions])[:, :, None] + PROBES[directions]  # (images, PLACES, probes, 2)
        has_room = self.has_room(images, probes)
        able, chosen = np.flatnonzero(has_room.any(1)), has_room.argmax(1)  # the first candidate with enough space
        grown, chosen = images[able], chosen[able]
        self.put(grown, first, middles[able, chosen], directions[able, chosen])
        for paddle in range(first + 1, first + self.settings.distractor_length):
            grown = self.extend(grown, paddle, PROBES)
        failed = ~np.isin(images, grown)
        self.owners[images[failed]] = before[failed]
        return grown

    def extend(self, images: Ints, paddle: int, probes: Ints, rival: int = _CLOSED) -> Ints:
        """Adds a paddle in a random direction that has enough space."""
        before = self.directions[images, paddle - 1]
        pivots = self.middles[images, paddle - 1] + HALF[before]
        directions = (before[:, None] + TURNS) % N_DIRECTIONS
        places = pivots[:, None, None] + probes[directions]  # (images, turns, probes, 2)
        sums = (self.has_room(images, places, paddle - 1) * TURN_WEIGHTS).cumsum(1)
        mark = (self.generator.random(len(images)) * sums[:, -1]).astype(np.int64)
        chosen = (sums <= mark[:, None]).sum(1)
        able = np.flatnonzero(sums[:, -1])
        images, taken = images[able], directions[able, chosen[able]]
        self.put(images, paddle, pivots[able] + HALF[taken], taken, rival)
        return images

    def put(self, images: Ints, paddle: int, middles: Ints, directions: Ints, rival: int = _CLOSED) -> None:
        """Records a paddle and reserves its cells."""
        self.middles[images, paddle], self.directions[images, paddle] = middles, directions
        self.claim(images, paddle, middles, self.paddle_cells[directions], rival)

    def claim(self, images: Ints, paddle: int, places: Ints, offsets: Ints, rival: int) -> None:
        """Reserves the open cells at ``offsets`` from a place for a paddle, and closes those reserved for ``rival``."""
        at = images[:, None], self.cells(places)[:, None] + offsets
        before = self.owners[at]
        self.owners[at] = np.where(before == _FREE, paddle, np.where(before == rival, _CLOSED, before))

    def has_room(self, images: Ints, places: Ints, beside: int = _FREE) -> NDArray[np.bool_]:
        """Returns whether all ``places`` (images, paddles, places, 2) are open or reserved for paddle ``beside``."""
        owners = self.owners[images[:, None, None], self.cells(places)]
        return ((owners == _FREE) | (owners == beside)).all(-1)

    def cells(self, places: Ints) -> Ints:
        """Returns the indices of the map cells at the given places."""
        x, y = np.moveaxis(places * CELLS // UNITS + FRAME, -1, 0)
        return y * self.width + x


def target_ends(middles: Ints, directions: Ints, contour_length: int) -> Ints:
    """Returns both ends of the two long snakes, ``(images, snakes, 2, 2)``, given all paddles of the images."""
    first, last = ([at, contour_length + at] for at in (0, contour_length - 1))
    begins, ends = middles[:, first] - TIP[directions[:, first]], middles[:, last] + TIP[directions[:, last]]
    return np.stack([begins, ends], axis=2)


@dataclass(frozen=True, eq=False)
class PathfinderImages:
    """Images, their labels, and their paddles. Those of the two long snakes precede those of the short snakes."""

    pixels: NDArray[np.uint8]  # (images, size, size), grey levels
    labels: Ints  # (images,), 1 if the discs lie on the two ends of one long snake
    marker_distances: NDArray[np.float64]  # (images,), distance between the discs in pixels
    middles: Ints  # (images, paddles, 2), the middle of each paddle
    directions: Ints  # (images, paddles), pointing from the start of the snake to its end
    discs: Ints  # (images, 2, 2), one at the start of a long snake, then one at the end of a long snake


def generate_images(
    n_images: int, generator: np.random.Generator, settings: PathfinderSettings | None = None
) -> PathfinderImages:
    """Draws images with two long snakes, several short snakes, and two discs at ends of long snakes.

    Many images are attempted together, so each image also depends on ``n_images``. An attempt fails if a snake cannot
    continue or two ends are too close. Labels 0 and 1 are equally likely; 1 means that both discs mark the same snake.
    """
    check_sizes(n_images=n_images)
    settings = settings or PathfinderSettings()
    kept: list[tuple[Ints, Ints]] = []
    n_kept = n_failures = 0
    while n_kept < n_images:
        n_attempts = AT_ONCE if n_failures else min(AT_ONCE, 32 + 4 * (n_images - n_kept))
        kept.append(_Attempts(n_attempts, generator, settings).run())
        n_new = len(kept[-1][0])
        n_kept, n_failures = n_kept + n_new, 0 if n_new else n_failures + n_attempts
        if n_failures >= MOST_FAILURES:
            expected = f"settings with which at least one of {n_failures} attempts succeeds"
            raise SbmtError(expected, settings, "shorten the curves or enlarge the images")
    middles, directions = (np.concatenate(arrays)[:n_images] for arrays in zip(*kept, strict=True))
    begins, labels = (generator.random((2, n_images)) < 0.5).astype(np.int64)
    finishes = np.where(labels, begins, 1 - begins)  # snakes with a disc at the end
    images, ends = np.arange(n_images), target_ends(middles, directions, settings.contour_length)
    discs = np.stack([ends[images, begins, 0], ends[images, finishes, 1]], axis=1)
    distances = np.sqrt(((discs[:, 0] - discs[:, 1]) ** 2).sum(1)) / UNITS
    pixels = _draw(middles, directions, discs, settings.size)
    return PathfinderImages(pixels, labels, distances, middles, directions, discs)


def _draw(middles: Ints, directions: Ints, discs: Ints, size: int) -> NDArray[np.uint8]:
    """Draws paddles, then white discs over them. Each pixel is the rounded mean of its samples."""
    n = ANTIALIAS
    reach = math.ceil(n * max(math.hypot(LENGTH, THICKNESS) / 2, RADIUS)) + 1  # samples from a shape's centre to edge
    samples = np.zeros((len(discs), *[n * size + 2 * reach] * 2), dtype=np.uint8)
    window = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)[::-1].T  # (samples, 2)
    units = vectors(float(ONE))
    length, thickness = (round(ONE * UNITS * n * extent / 2) for extent in (LENGTH, THICKNESS))

    def paint(places: Ints, directions: Ints | None, level: int) -> None:
        nearest = places * n // UNITS
        # distances to the surrounding samples, which are UNITS apart
        x, y = np.moveaxis((nearest * UNITS + UNITS // 2 - places * n)[:, None] + UNITS * window, -1, 0)
        if directions is None:
            is_covered = x**2 + y**2 <= round(UNITS * n * RADIUS) ** 2
        else:
            unit_x, unit_y = units[directions].T[:, :, None]
            along, across = x * unit_x + y * unit_y, y * unit_x - x * unit_y
            # Only one of the long sides counts as covered; otherwise a paddle could be two samples thick.
            is_covered = (abs(along) <= length) & (-thickness <= across) & (across < thickness)
        image, place = np.nonzero(is_covered)
        x, y = (nearest[image] + window[place] + reach).T
        samples[image, y, x] = level

    for places, of in zip(middles.swapaxes(0, 1), directions.T, strict=True):
        paint(places, of, round(WHITE * CONTRAST))
    for places in discs.swapaxes(0, 1):
        paint(places, None, WHITE)
    inner = samples[:, reach:-reach, reach:-reach].reshape(-1, size, n, size, n)
    return ((inner.sum((2, 4), dtype=np.int64) + n * n // 2) // n**2).astype(np.uint8)


def pathfinder_source(
    settings: PathfinderSettings | None = None, *, n_images: int = 200_000, seed: int = 0, name: str = "pathfinder"
) -> Source:
    """Returns a source of generated images. Each part depends only on the settings, the seed, its number and size."""
    check_seed(seed)
    check_sizes(n_images=n_images)
    settings = settings or PathfinderSettings()

    def parts() -> Iterator[tuple[str, Examples]]:
        for part, start in enumerate(range(0, n_images, SHARD_SIZE)):
            n = min(SHARD_SIZE, n_images - start)
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, part])))
            images = generate_images(n, generator, settings)
            extras = {"marker_distance": images.marker_distances}
            yield "", Examples(images.pixels.ravel(), np.full((n, 1), settings.size**2), images.labels, extras)

    fixed = {"padding": PADDING, "paddle_margin": MARGIN, "paddle_length": LENGTH, "paddle_thickness": THICKNESS}
    fixed |= {"marker_radius": RADIUS, "continuity": 1.0, "antialias": ANTIALIAS, "paddle_contrast": CONTRAST}
    sizes = {"n_images": n_images, "shard_size": SHARD_SIZE, "draws": "PCG64(SeedSequence([seed, shard]))"}
    recorded = {"images": asdict(settings) | fixed} | sizes | {"seed": seed}
    classes, arrange = ("apart", "connected"), partial(tenths, seed=seed)
    return Source(name, "pathfinder", "generated", classes, 256, 0, recorded, parts, arrange)
