"""Settings of Pathfinder images: sizes, lengths and numbers."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from sbmt.errors import SbmtError, check_sizes

MOST_PADDLES = 32_000
"""Largest number of paddles in an image: they are numbered in 16 bits."""

_DISTRACTOR_PADDLES = 20  # of all distractors together, if their number is not given


@dataclass(frozen=True)
class PathfinderSettings:
    """How Pathfinder images are made. Lengths are in pixels.

    Raises:
        SbmtError: If a number is out of range. Whether there is room for the snakes only shows when they are drawn.

    Source: the settings that Long Range Arena documents for the hardest of its 32 × 32 images. Its ``snake contrast``
        is left out: its effect is not documented, and all paddles have the same contrast anyway.
    """

    size: int = 32  # of an image, each way
    padding: float = 1.0  # kept free of paddles along the edges
    paddle_margin: float = 1.0  # gap between the paddles of a snake, and smallest gap between snakes
    paddle_length: float = 2.0
    paddle_thickness: float = 0.5
    marker_radius: float = 1.5  # of the two discs
    contour_length: int = 14  # paddles of each of the two long snakes
    distractor_length: int | None = None  # paddles of each short snake; None: a third of contour_length
    n_distractors: int | None = None  # short snakes; None: as many as make up 20 paddles
    seed_distance: float = 7.0  # between the places where the two long snakes begin
    continuity: float = 1.0  # a turn t has weight cos²(min(continuity |t|, π/2)); larger values make straighter snakes
    antialias: int = 2  # samples per pixel, each way
    paddle_contrast: float = 0.75  # brightness of paddles; the discs are white

    def __post_init__(self) -> None:
        check_sizes(size=self.size, antialias=self.antialias)
        if not isinstance(self.contour_length, int) or self.contour_length < 2:
            raise SbmtError("contour_length ≥ 2", self.contour_length, "a snake needs two ends")
        if self.distractor_length is not None:
            check_sizes(distractor_length=self.distractor_length)
        if self.n_distractors is not None and (not isinstance(self.n_distractors, int) or self.n_distractors < 0):
            raise SbmtError("n_distractors ≥ 0", self.n_distractors, "give zero or a positive integer")
        n_distractors, distractor_length = self.distractors()
        n_paddles = 2 * self.contour_length + n_distractors * distractor_length
        if n_paddles > MOST_PADDLES:
            raise SbmtError(f"at most {MOST_PADDLES} paddles per image", n_paddles, "ask for fewer or shorter snakes")
        self._check_lengths()

    def _check_lengths(self) -> None:
        for name in ("padding", "paddle_margin", "continuity", "paddle_length", "marker_radius"):
            may_be_zero = name in ("padding", "paddle_margin", "continuity")
            value = getattr(self, name)
            if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
                raise SbmtError(f"{name} {'≥' if may_be_zero else '>'} 0", value, "give a finite number")
        if not 1 / self.antialias <= self.paddle_thickness < math.inf:
            do = "make paddles thicker or antialias larger, or paddles will fall between samples"
            raise SbmtError(f"paddle_thickness ≥ 1/{self.antialias}, of a sample", self.paddle_thickness, do)
        least = 2 * self.marker_radius + self.paddle_margin
        if not least <= self.seed_distance < math.inf:
            expected = f"seed_distance ≥ 2 marker_radius + paddle_margin = {least}"
            raise SbmtError(expected, self.seed_distance, "keep the discs apart")
        if not 0 < self.paddle_contrast <= 1:
            raise SbmtError("paddle_contrast in (0, 1]", self.paddle_contrast, "give a share of white")

    def distractors(self) -> tuple[int, int]:
        """The number of short snakes, and the number of paddles of each.

        Example:
            >>> PathfinderSettings().distractors()
            (5, 4)
            >>> PathfinderSettings(contour_length=9).distractors()
            (6, 3)
        """
        length = max(self.contour_length // 3, 1) if self.distractor_length is None else self.distractor_length
        return (_DISTRACTOR_PADDLES // length if self.n_distractors is None else self.n_distractors), length

    def to_json(self) -> dict[str, Any]:
        """All settings, with the numbers that follow from the rules for distractors."""
        n_distractors, distractor_length = self.distractors()
        return asdict(self) | {"n_distractors": n_distractors, "distractor_length": distractor_length}
