"""Pathfinder: do two discs lie on the same dashed curve? Images are generated, or read from Long Range Arena's files.

An image shows two long snakes, chains of paddles that grow at random and keep apart, some short ones, and two discs.
Places are (x, y) in whole units, y downwards, and so is all arithmetic: images are the same on every machine.

Source: Linsley et al., Learning long-range spatial dependencies with horizontal gated recurrent units (2018), drawn
after their description with the settings of Long Range Arena (Tay et al., ICLR 2021). Places and directions are
rounded, and a disc has open space around it, so that it is clear whose end it marks.
"""

import hashlib
import io
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_seed, check_sizes, is_integer, is_number
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Parts, Pool, Source, shuffled
from sbmt.experiments.files import read_file

Ints = NDArray[np.int64]

# In pixels, as Long Range Arena documents them for its 32 × 32 images.
PADDING = 1.0  # kept free of paddles along the edges
MARGIN = 1.0  # gap between the paddles of a snake, and smallest gap between snakes
LENGTH, THICKNESS = 2.0, 0.5  # of a paddle
RADIUS = 1.5  # of the two discs
ANTIALIAS = 2  # samples per pixel, each way
WHITE, CONTRAST = 255, 0.75  # level of the discs, and of paddles as a share of it

UNITS = 256  # units per pixel
CELLS = 4  # cells per pixel, in each direction, of the map of occupied places
CELL_UNITS = UNITS // CELLS
N_DIRECTIONS = 64  # in which paddles point; direction i has the angle 2π i / 64
TURNS = np.arange(-N_DIRECTIONS // 4, N_DIRECTIONS // 4 + 1, dtype=np.int64)  # a sharper turn leads back
ONE = 4096  # length of a direction's vector, and the largest weight of a turn
# The middle lines of paddles of different snakes are at least margin + thickness apart, and √2/4 pixels more because of
# the rounding to cells. Half a margin around a disc stays free.
CLEARANCE = MARGIN + THICKNESS + math.sqrt(2) / CELLS
CIRCLE = RADIUS - (THICKNESS + MARGIN) / 2
FRAME = math.ceil((MARGIN + LENGTH + 2 * (CIRCLE + CLEARANCE) + 1) * CELLS)  # cells around the map of an image

MOST_PADDLES = 32_000  # in an image: they are numbered in 16 bits
MOST_FAILURES = 4096  # failed attempts in a row before settings count as impossible
AT_ONCE, MOST_CELLS = 256, 1 << 24  # attempts at once, and cells of their maps, to limit memory
TRIES = 8  # attempts at each short snake before an image is given up
PLACES = 8  # places where a short snake may begin, per attempt; the first free one is taken
SHARD_SIZE = 1000  # images drawn from one stream


@dataclass(frozen=True)
class PathfinderSettings:
    """How Pathfinder images are made; the defaults are those of Long Range Arena's hardest 32 × 32 images."""

    size: int = 32  # of an image, each way, in pixels
    contour_length: int = 14  # paddles of each of the two long snakes
    distractor_length: int | None = None  # paddles of each short snake; None: a third of contour_length
    n_distractors: int | None = None  # short snakes; None: as many as make up 20 paddles
    seed_distance: float = 7.0  # between the places where the two long snakes begin, in pixels

    def __post_init__(self) -> None:
        check_sizes(size=self.size, contour_length=self.contour_length)
        n_distractors, distractor_length = self.distractors()
        if self.contour_length < 2:
            raise SbmtError("contour_length ≥ 2", self.contour_length, "a snake needs two ends")
        if not is_integer(n_distractors) or n_distractors < 0:
            raise SbmtError("n_distractors ≥ 0", n_distractors, "give zero or a positive integer")
        n_paddles = 2 * self.contour_length + n_distractors * distractor_length
        if n_paddles > MOST_PADDLES:
            raise SbmtError(f"at most {MOST_PADDLES} paddles per image", n_paddles, "ask for fewer or shorter snakes")
        if not is_number(self.seed_distance) or not 2 * RADIUS + MARGIN <= self.seed_distance < math.inf:
            raise SbmtError(f"seed_distance ≥ {2 * RADIUS + MARGIN}", self.seed_distance, "keep the discs apart")

    def distractors(self) -> tuple[int, int]:
        """The number of short snakes, and the number of paddles of each."""
        length = max(self.contour_length // 3, 1) if self.distractor_length is None else self.distractor_length
        check_sizes(distractor_length=length)
        return (20 // length if self.n_distractors is None else self.n_distractors), length


def vectors(length: float) -> Ints:
    """Vectors of a length in all directions, ``(directions, 2)``, rounded so that last bits do not count."""
    angles = [2 * math.pi * i / N_DIRECTIONS for i in range(N_DIRECTIONS)]
    return np.array([[round(length * math.cos(a)), round(length * math.sin(a))] for a in angles], dtype=np.int64)


def _cells_within(radius: float, length: float, width: int) -> Ints:
    """Cells within a radius of a segment, by direction; shorter rows are filled with copies of their first cell."""
    reach = math.ceil((radius + length / 2) * CELLS)
    y, x = CELL_UNITS * np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    rows = []
    for unit in vectors(float(ONE)):
        along, across = x * unit[0] + y * unit[1], y * unit[0] - x * unit[1]
        beyond = np.maximum(abs(along) - round(ONE * UNITS * length / 2), 0)
        is_within = beyond**2 + across**2 <= round(ONE * UNITS * radius) ** 2
        rows.append((y // CELL_UNITS * width + x // CELL_UNITS)[is_within])
    longest = max(map(len, rows))
    return np.stack([np.concatenate([row, np.full(longest - len(row), row[0])]) for row in rows]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Snakes:
    """Snakes of equal length, the same number in each image."""

    middles: Ints  # (images, snakes, paddles, 2), the middle of each paddle
    directions: Ints  # (images, snakes, paddles), from the snake's beginning to its end

    def ends(self) -> Ints:
        """The outer ends of each snake's first and last paddle, ``(images, snakes, 2, 2)``."""
        tip = vectors(UNITS * LENGTH / 2)
        first = self.middles[:, :, 0] - tip[self.directions[:, :, 0]]
        return np.stack([first, self.middles[:, :, -1] + tip[self.directions[:, :, -1]]], axis=2)


_FREE, _CLOSED = -1, -2  # owners of cells that are open, and of those that none may enter, such as along the edges


class _Attempts:
    """Images while their snakes grow, and a map of each: which paddle excludes others from a cell.

    A snake is a chain of pivots. Between two pivots lies a paddle, which ends half a margin before each of them.
    Paddles have the same numbers in all images: first those of one long snake, then those of the other, then those of
    the short snakes. Methods act on the images whose numbers they are given, and return those in which they succeeded.
    """

    def __init__(self, n_images: int, generator: np.random.Generator, settings: PathfinderSettings) -> None:
        self.generator, self.settings = generator, settings
        n_distractors, distractor_length = settings.distractors()
        n_paddles = 2 * settings.contour_length + n_distractors * distractor_length
        self.middles = np.zeros((n_images, n_paddles, 2), dtype=np.int64)
        self.directions = np.zeros((n_images, n_paddles), dtype=np.int64)
        # By direction: from a pivot to the middle of the next paddle, from there to its end, and from the pivot to
        # places along the paddle, at most half a pixel apart; then with places around its ends, where a disc may come.
        self.half, self.tip = vectors(UNITS * (MARGIN + LENGTH) / 2), vectors(UNITS * LENGTH / 2)
        self.probes = np.stack([vectors(UNITS * (MARGIN / 2 + LENGTH * i / 4)) for i in range(5)], axis=1)
        around = vectors(UNITS * CIRCLE)[None, :: N_DIRECTIONS // 8]
        self.first_probes = np.concatenate([self.probes, (self.half - self.tip)[:, None] + around], axis=1)
        self.last_probes = np.concatenate([self.probes, (self.half + self.tip)[:, None] + around], axis=1)
        self.weights = np.array([round(ONE * math.cos(2 * math.pi * t / N_DIRECTIONS) ** 2) for t in TURNS.tolist()])
        self.width = settings.size * CELLS + 2 * FRAME
        self.paddle_cells = _cells_within(CLEARANCE, LENGTH, self.width)  # from which a paddle excludes others
        self.disc_cells = _cells_within(CLEARANCE + CIRCLE, 0.0, self.width)[:1]
        centres = np.arange(settings.size * CELLS) * CELL_UNITS + CELL_UNITS // 2
        edge = round(UNITS * (PADDING + THICKNESS / 2))
        inside = FRAME + np.flatnonzero((centres >= edge) & (centres <= settings.size * UNITS - edge))
        owners = np.full((n_images, self.width, self.width), _CLOSED, dtype=np.int16)
        owners[:, inside[:, None], inside] = _FREE
        self.owners = owners.ravel()

    def run(self) -> tuple[Ints, Ints]:
        """Middles and directions of all paddles, of the images in which every snake grew."""
        images = self.grow_targets(self.begin_targets())
        n_distractors, length = self.settings.distractors()
        for snake in range(n_distractors):
            first, without = 2 * self.settings.contour_length + snake * length, images
            for _ in range(TRIES):
                if len(without):
                    grown = self.grow_distractor(without, range(first, first + length))
                    without = np.setdiff1d(without, grown, assume_unique=True)
            images = np.setdiff1d(images, without, assume_unique=True)
        return self.middles[images], self.directions[images]

    def targets(self, images: Ints) -> Snakes:
        """The two long snakes."""
        shape, n = (len(images), 2, self.settings.contour_length), 2 * self.settings.contour_length
        return Snakes(self.middles[images, :n].reshape(*shape, 2), self.directions[images, :n].reshape(shape))

    def begin_targets(self) -> Ints:
        """Places the first paddles, each with its outer end on a seed."""
        side = self.settings.size * UNITS
        images = np.arange(len(self.directions))
        draws = self.generator.random((5, len(images)))
        centres = (draws[:2].T * side).astype(np.int64)
        apart, *directions = (draws[2:] * N_DIRECTIONS).astype(np.int64)
        offsets = vectors(UNITS * self.settings.seed_distance / 2)[apart]
        seeds = np.stack([centres - offsets, centres + offsets])
        images = images[((seeds >= 0) & (seeds < side)).all((0, 2))]
        for snake, rival in enumerate((None, 0)):
            taken, places = directions[snake][images], seeds[snake, images]
            pivots = places + self.tip[taken] - self.half[taken]
            probes = (pivots[:, None] + self.first_probes[taken])[:, None]  # (images, 1, probes, 2)
            able = self.has_room(images, probes)[:, 0]
            images, taken, places = images[able], taken[able], places[able]
            paddle = snake * self.settings.contour_length
            self.put(images, paddle, places + self.tip[taken], taken, rival)
            self.claim(images, paddle, places, self.disc_cells, rival)
        return images

    def grow_targets(self, images: Ints) -> Ints:
        """Grows both long snakes, which have begun."""
        length = self.settings.contour_length
        for number in range(1, length):
            is_last = number == length - 1
            for paddle, rival in ((number, length + number - 1), (length + number, number)):
                images = self.extend(images, paddle, self.last_probes if is_last else self.probes, rival)
                if is_last:
                    ends = self.middles[images, paddle] + self.tip[self.directions[images, paddle]]
                    self.claim(images, paddle, ends, self.disc_cells, rival)
        ends = self.targets(images).ends().reshape(-1, 4, 2)
        one, other = np.triu_indices(4, 1)
        squares = ((ends[:, one] - ends[:, other]) ** 2).sum(-1)
        return images[(squares >= round(UNITS * (2 * RADIUS + MARGIN)) ** 2).all(1)]

    def grow_distractor(self, images: Ints, paddles: range) -> Ints:
        """Grows one short snake; leaves no trace in the images in which that failed."""
        draws = self.generator.random((len(images), PLACES, 3))
        middles = (draws[..., :2] * self.settings.size * UNITS).astype(np.int64)
        directions = (draws[..., 2] * N_DIRECTIONS).astype(np.int64)
        probes = (middles - self.half[directions])[:, :, None] + self.probes[directions]  # (images, PLACES, probes, 2)
        has_room = self.has_room(images, probes)
        able, chosen = np.arange(len(images)), has_room.argmax(1)  # the first place with room, if there is one
        able = able[has_room[able, chosen]]
        images, chosen = images[able], chosen[able]
        self.put(images, paddles[0], middles[able, chosen], directions[able, chosen])
        for paddle in paddles[1:]:
            before = images
            images = self.extend(before, paddle, self.probes)
            failed = np.setdiff1d(before, images, assume_unique=True)
            for removed in range(paddles[0], paddle):
                offsets = self.paddle_cells[self.directions[failed, removed]]
                cells = self.cells(failed, self.middles[failed, removed])[:, None] + offsets
                self.owners[cells[self.owners[cells] == removed]] = _FREE
        return images

    def extend(self, images: Ints, paddle: int, probes: Ints, rival: int | None = None) -> Ints:
        """Adds a paddle in a direction drawn among those with room."""
        before = self.directions[images, paddle - 1]
        pivots = self.middles[images, paddle - 1] + self.half[before]
        directions = (before[:, None] + TURNS) % N_DIRECTIONS
        places = pivots[:, None, None] + probes[directions]  # (images, turns, probes, 2)
        sums = (self.has_room(images, places, paddle - 1) * self.weights).cumsum(1)
        mark = (self.generator.random(len(images)) * sums[:, -1]).astype(np.int64)
        chosen = (sums <= mark[:, None]).sum(1)
        (able,) = np.nonzero(sums[:, -1])
        images, taken = images[able], directions[able, chosen[able]]
        self.put(images, paddle, pivots[able] + self.half[taken], taken, rival)
        return images

    def put(self, images: Ints, paddle: int, middles: Ints, directions: Ints, rival: int | None = None) -> None:
        """Adds a paddle."""
        self.middles[images, paddle] = middles
        self.directions[images, paddle] = directions
        self.claim(images, paddle, middles, self.paddle_cells[directions], rival)

    def claim(self, images: Ints, paddle: int, places: Ints, offsets: Ints, rival: int | None) -> None:
        """Gives open cells to a paddle; they are ``offsets`` from those of the places, one for each image.

        A snake may continue beside its last paddle, that is, through that paddle's cells. If the other snake claims a
        cell of ``rival``, the last paddle of a snake that is still growing, neither may enter it any more.
        """
        cells = self.cells(images, places)[:, None] + offsets
        before = self.owners[cells]
        self.owners[cells[before == _FREE]] = paddle
        if rival is not None:
            self.owners[cells[before == rival]] = _CLOSED

    def has_room(self, images: Ints, places: Ints, beside: int = _FREE) -> NDArray[np.bool_]:
        """Whether all places ``(images, paddles, places, 2)`` are open, or belong to the one paddle ``beside``."""
        owners = self.owners[self.cells(images, places)]
        return np.logical_and.reduce((owners == _FREE) | (owners == beside), axis=-1)

    def cells(self, images: Ints, places: Ints) -> Ints:
        """The cells of places in the map."""
        cells = places // CELL_UNITS
        first = (images * self.width + FRAME) * self.width + FRAME
        return cells[..., 1] * self.width + cells[..., 0] + first.reshape(-1, *[1] * (places.ndim - 2))


@dataclass(frozen=True, eq=False)
class PathfinderImages:
    """Images, and what is known of them."""

    pixels: NDArray[np.uint8]  # (images, size, size), grey levels
    labels: Ints  # (images,), 1 where the discs lie on the ends of one long snake
    marker_distances: NDArray[np.float64]  # (images,), in pixels, from disc to disc
    targets: Snakes  # the two long snakes of each image
    distractors: Snakes  # the short snakes
    discs: Ints  # (images, 2, 2), on the beginning of a snake, then on the end of one


def generate_images(
    n_images: int, generator: np.random.Generator, settings: PathfinderSettings | None = None
) -> PathfinderImages:
    """Draws images with two long snakes, short ones, and two discs.

    The long snakes begin ``seed_distance`` apart, at a place and in directions drawn uniformly, and take turns to grow
    by one paddle. Among the directions in which the next paddle has room, a turn t has weight cos²(t). An image is
    started again if a snake cannot continue, an end has no room for a disc, or two ends are so close that discs on them
    would touch. Short snakes follow one by one. Attempts are made for all images together, so that each depends on
    their number. With the default settings one attempt in nine gives an image.

    One disc lies on the beginning of a long snake and the other on the end of one: of the same snake for label 1, of
    the other one for label 0. Which of the four possibilities is taken is drawn uniformly and after all snakes, so that
    the snakes alone say nothing about the label, nor do they together with one disc. But part of what can be seen
    without following a snake does: with the default settings, a table of 50,000 images predicts 52 % of other images
    correctly from the distance of the discs, and 66 % from that and the directions of the two paddles under them.
    """
    check_sizes(n_images=n_images)
    settings = settings or PathfinderSettings()
    kept: list[tuple[Ints, Ints]] = []
    n_kept = n_failures = 0
    at_once = min(AT_ONCE, 1 + MOST_CELLS // (settings.size * CELLS + 2 * FRAME) ** 2)
    while n_kept < n_images:
        n_attempts = at_once if n_failures else min(at_once, 32 + 4 * (n_images - n_kept))
        kept.append(_Attempts(n_attempts, generator, settings).run())
        n_new = len(kept[-1][0])
        n_kept += n_new
        n_failures = 0 if n_new else n_failures + n_attempts
        if n_failures >= MOST_FAILURES:
            expected = f"settings that one of {n_failures} attempts satisfies"
            raise SbmtError(expected, settings, "shorten the snakes, or make images larger")
    middles, directions = (np.concatenate(arrays)[:n_images] for arrays in zip(*kept, strict=True))
    begins, labels = (generator.random((2, n_images)) < 0.5).astype(np.int64)
    finishes = np.where(labels, begins, 1 - begins)  # the snakes with a disc
    n_long = 2 * settings.contour_length
    targets, distractors = (
        Snakes(middles[:, part].reshape(n_images, *shape, 2), directions[:, part].reshape(n_images, *shape))
        for part, shape in (
            (slice(n_long), (2, settings.contour_length)),
            (slice(n_long, None), settings.distractors()),
        )
    )
    images, ends = np.arange(n_images), targets.ends()
    discs = np.stack([ends[images, begins, 0], ends[images, finishes, 1]], axis=1)
    return PathfinderImages(
        pixels=_draw(middles, directions, discs, settings.size),
        labels=labels,
        marker_distances=np.sqrt(((discs[:, 0] - discs[:, 1]) ** 2).sum(1)) / UNITS,
        targets=targets,
        distractors=distractors,
        discs=discs,
    )


def _draw(middles: Ints, directions: Ints, discs: Ints, size: int) -> NDArray[np.uint8]:
    """Draws paddles ``(images, paddles, 2)`` and white discs ``(images, discs, 2)`` over them.

    Every pixel is the rounded mean of its samples. A sample is as bright as the brightest thing that covers it.
    """
    n = ANTIALIAS
    reach = math.ceil(n * max(math.hypot(LENGTH, THICKNESS) / 2, RADIUS)) + 1  # samples that a thing can cover
    samples = np.zeros((len(discs), *[n * size + 2 * reach] * 2), dtype=np.uint8)
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    window = np.stack([x, y], axis=-1)
    units = vectors(float(ONE))
    n_paddles = directions.shape[1]
    for number in range(n_paddles + discs.shape[1]):
        is_disc = number >= n_paddles
        places = discs[:, number - n_paddles] if is_disc else middles[:, number]
        nearest = places * n // UNITS
        # distances of the samples around it, which are UNITS apart
        x, y = np.moveaxis((nearest * UNITS + UNITS // 2 - places * n)[:, None] + UNITS * window, -1, 0)
        if is_disc:
            is_covered = x**2 + y**2 <= round(UNITS * n * RADIUS) ** 2
        else:
            unit_x, unit_y = units[directions[:, number]].T[:, :, None]
            along, across = x * unit_x + y * unit_y, y * unit_x - x * unit_y
            length, thickness = (round(ONE * UNITS * n * extent / 2) for extent in (LENGTH, THICKNESS))
            # One long side belongs to it and the other does not, or it could cover two samples in a row.
            is_covered = (abs(along) <= length) & (-thickness <= across) & (across < thickness)
        image, place = np.nonzero(is_covered)
        at = nearest[image] + window[place] + reach
        samples[image, at[:, 1], at[:, 0]] = WHITE if is_disc else round(WHITE * CONTRAST)
    inner = samples[:, reach:-reach, reach:-reach].reshape(-1, size, n, size, n)
    return ((inner.sum((2, 4), dtype=np.int64) + n * n // 2) // n**2).astype(np.uint8)


def pathfinder_source(
    settings: PathfinderSettings | None = None, *, n_images: int = 200_000, seed: int = 0, name: str = "pathfinder"
) -> Source:
    """Generated images, see :func:`generate_images`: as symbols the pixels, row by row, whose levels are token ids.

    Part i depends only on the settings, the seed, i and its size, which is 1000 except for the last one. A permutation
    drawn by the seed divides all images 8 : 1 : 1 into train, dev and test. ``extras["marker_distance"]`` is the
    distance of the discs in pixels.
    """
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

    recorded: dict[str, float] = dict(zip(("n_distractors", "distractor_length"), settings.distractors(), strict=True))
    recorded |= {"padding": PADDING, "paddle_margin": MARGIN, "paddle_length": LENGTH, "paddle_thickness": THICKNESS}
    recorded |= {"marker_radius": RADIUS, "continuity": 1.0, "antialias": ANTIALIAS, "paddle_contrast": CONTRAST}
    sizes = {"n_images": n_images, "shard_size": SHARD_SIZE, "draws": "PCG64(SeedSequence([seed, shard]))"}
    return _source(name, "generated", {"images": asdict(settings) | recorded} | sizes, parts, seed)


def _source(name: str, origin: Origin, settings: dict[str, Any], parts: Parts, seed: int) -> Source:
    def arrange(pool: Pool) -> Arrangement:
        """Eight tenths for train, one tenth for dev, and the rest for test."""
        order, n = shuffled(len(pool.labels), seed), len(pool.labels)
        train, dev, test = np.split(order, [n * 8 // 10, n * 8 // 10 + n // 10])
        return {"train": train, "dev": dev, "test": test}

    settings = settings | {"seed": seed}
    return Source(name, "pathfinder", origin, ("apart", "connected"), 256, 0, settings, parts, arrange)


INNER = "pathfinder32/curv_contour_length_14"
"""The hardest of three kinds, for which results are usually published, in the folder of its size."""

ARCHIVE = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
FETCH = "get the file again, with everything beside it in lra_release.gz"


def pathfinder_folder(folder: Path | str) -> Source:
    """Long Range Arena's own images of 32 × 32 pixels, encoded and divided as in :func:`pathfinder_source`.

    ``folder`` holds ``imgs`` and ``metadata``; or it contains ``curv_contour_length_14``, the hardest kind, or
    ``pathfinder32`` around it, or what ``lra_release.gz`` unpacks to. The images come in the order of the metadata
    files by number and of their lines. The release has some images whose file is empty; they are left out.
    """
    folder = Path(folder)
    inner = ("", INNER.split("/")[1], INNER, f"lra_release/{INNER}", f"lra_release/lra_release/{INNER}")
    place = next((folder / p for p in inner if (folder / p / "imgs").is_dir()), folder).resolve()
    files = sorted((place / "metadata").glob("*.npy"), key=lambda path: (len(path.stem), path.stem))
    if not files:
        do = f"unpack {INNER} of {ARCHIVE} there, or generate the images instead"
        raise SbmtError(f"folders imgs and metadata in {folder}, its {INNER} or its lra_release", "none", do)
    digest = hashlib.sha256()
    for file in files:
        content = read_file(file)
        digest.update(f"{file.name} {len(content)}\n".encode() + content)

    def parts() -> Iterator[tuple[str, Examples]]:
        for file in files:
            found = [(read_png(path, where), label) for where, path, label in read_rows(file, place)]
            images = [pixels.ravel() for pixels, _ in found if pixels is not None]
            labels = np.array([label for pixels, label in found if pixels is not None], np.int64)
            pixels = np.concatenate([np.empty(0, np.uint8), *images])
            yield "", Examples(pixels, np.full((len(images), 1), 32 * 32), labels)

    metadata = {"n_files": len(files), "sha256": digest.hexdigest()}
    return _source("pathfinder", "official", {"difficulty": place.name, "size": 32, "metadata": metadata}, parts, 0)


def read_rows(metadata: Path, folder: Path) -> list[tuple[str, Path, int]]:
    """What a metadata file says of each image: the line that says so, the image's file in ``folder``, and its label.

    The fields of a line are sub-folder, file name, number, label, and more that are ignored. In spite of its name, the
    file is text; an array that NumPy has pickled is refused.
    """
    try:
        lines = read_file(metadata).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        got, do = f"something else ({error})", f"{FETCH}; an array has to be saved as text: a pickle is never opened"
        raise SbmtError(f"UTF-8 text in {metadata}", got, do) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        where, fields = f"line {number} of {metadata}", line.split()
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise SbmtError(f"folder, file, number and label 0 or 1 in {where}", line[:80] or "nothing", FETCH)
        path = PurePosixPath(fields[0], fields[1])
        if path.is_absolute() or ".." in path.parts:
            raise SbmtError(f"a file below {folder} in {where}", line[:80], FETCH)
        rows.append((where, folder / path, int(fields[3])))
    return rows


def read_png(path: Path, where: str) -> NDArray[np.uint8] | None:
    """Grey levels ``(32, 32)`` of a PNG file that a line names, or None if the file is empty.

    A colour image is accepted if red, green and blue are equal everywhere.
    """
    from PIL import Image

    if not (content := read_file(path, do=f"correct {where}, or {FETCH}")):
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            image.verify()  # the checksums of all parts; the pixels have to be read from the start again
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != (32, 32) or image.mode not in ("L", "RGB"):
                raise ValueError(f"{image.size[0]} × {image.size[1]} of mode {image.mode}")
            pixels = np.asarray(image).reshape(32, 32, -1)
    except Exception as error:  # of a damaged image Pillow raises almost anything
        expected = f"a whole PNG file of 32 × 32 grey levels {path}, which {where} names"
        raise SbmtError(expected, str(error)[:200], FETCH) from error
    if (pixels != pixels[..., :1]).any():
        raise SbmtError(f"grey levels {path}, which {where} names", "colours", "give the folder of such images")
    return pixels[..., 0]
