"""Pathfinder's geometry in whole numbers: places, directions, and what a paddle covers in each direction."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sbmt.experiments.data.pathfinder.settings import PathfinderSettings

UNITS = 256
"""Units per pixel. Places are (x, y) in whole units, y downwards, so that images are the same on every machine."""

CELLS = 4
"""Cells per pixel, in each direction, of the map of occupied places."""

CELL_UNITS = UNITS // CELLS
"""Width of a cell in units."""

N_DIRECTIONS = 64
"""Number of directions in which paddles point; direction i has the angle 2π i / 64."""

TURNS = np.arange(-N_DIRECTIONS // 4, N_DIRECTIONS // 4 + 1, dtype=np.int64)
"""From one paddle to the next, in steps of 2π / 64: at most a right angle, since a sharper turn leads back."""

Ints = NDArray[np.int64]

ONE = 4096
"""Length of the vectors in :attr:`Tables.unit`, and the largest weight of a turn."""


@dataclass(frozen=True, eq=False)
class Tables:
    """What follows from some settings for each direction, in units.

    A snake is a chain of pivots. Between two pivots lies a paddle, which ends half a margin before each of them.
    """

    width: int  # of the map in cells, with its frame
    frame: int  # width of the frame on each side in cells, so that nothing extends beyond it
    unit: Ints  # (directions, 2), the direction as a vector
    half: Ints  # (directions, 2), from a pivot to the middle of the next paddle, and from there on
    tip: Ints  # (directions, 2), from the middle of a paddle to its end
    probes: Ints  # (directions, places, 2), from a pivot to places along the next paddle
    first_probes: Ints  # the same, with places around the paddle's beginning, where a disc may come
    last_probes: Ints  # the same, with places around its end
    paddle_cells: Ints  # (directions, cells) from which a paddle excludes others, relative to its middle
    marker_cells: Ints  # (1, cells) from which a disc does
    weights: Ints  # (turns,), the weight of each of TURNS


def vectors(length: float) -> Ints:
    """Vectors of a length in all directions, ``(directions, 2)``, rounded so that last bits do not count."""
    angles = [2 * math.pi * i / N_DIRECTIONS for i in range(N_DIRECTIONS)]
    return np.array([[round(length * math.cos(a)), round(length * math.sin(a))] for a in angles], dtype=np.int64)


@lru_cache
def tables(settings: PathfinderSettings) -> Tables:
    """The tables that belong to some settings.

    The middle lines of paddles of different snakes are at least margin + thickness apart, and √2/4 pixels more because
    of the rounding to cells. The places along a paddle are at most half a pixel apart.
    """
    gap, length, thickness = settings.paddle_margin / 2, settings.paddle_length, settings.paddle_thickness
    clearance = 2 * gap + thickness + math.sqrt(2) / CELLS
    circle = max(settings.marker_radius - thickness / 2 - gap, 0.0)  # half a margin around a disc stays free
    frame = math.ceil((2 * gap + length + 2 * circle + 2 * clearance + 1) * CELLS)
    width = settings.size * CELLS + 2 * frame
    n_gaps = math.ceil(2 * length)
    probes = np.stack([vectors(UNITS * (gap + length * i / n_gaps)) for i in range(n_gaps + 1)], axis=1)
    around = vectors(UNITS * circle)[None, :: N_DIRECTIONS // 8]
    half, tip = vectors(UNITS * (gap + length / 2)), vectors(UNITS * length / 2)
    turns = [2 * math.pi * turn / N_DIRECTIONS for turn in TURNS.tolist()]
    cosines = [math.cos(min(settings.continuity * abs(turn), math.pi / 2)) for turn in turns]
    return Tables(
        width=width,
        frame=frame,
        unit=vectors(float(ONE)),
        half=half,
        tip=tip,
        probes=probes,
        first_probes=np.concatenate([probes, (half - tip)[:, None] + around], axis=1),
        last_probes=np.concatenate([probes, (half + tip)[:, None] + around], axis=1),
        paddle_cells=_cells_within(clearance, length, width),
        marker_cells=_cells_within(clearance + circle, 0.0, width)[:1],
        weights=np.array([round(ONE * cosine**2) for cosine in cosines], dtype=np.int64),
    )


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
