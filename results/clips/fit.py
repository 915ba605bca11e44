"""A film of a training: the mask of one head grows sparse while the network learns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex
from torch import Tensor

from results.clips.film import Film, Number, box, number, words
from sbmt.experiments.plots.style import MASK_COLOURS, ORANGE

LEVELS = (1, 3, 5, 7, 9)
"""Least tenths of the shades that probabilities are drawn in; smaller ones are left blank."""
_DARK = ("#1C3B4E", "#27597A", "#3786B8", "#6FC3F2", "#D6EEFC")

# Where things are, in user units.
WIDTH, LEFT, TOP, SIDE = 460, 72, 78, 352
CURVES, CURVE_HEIGHT, CURVE_STEP = 500, 52, 90  # the top of the first curve, and from one to the next
HEIGHT = CURVES + 2 * CURVE_STEP + 10

# When things happen, in seconds.
SECONDS, FIRST, LAST, FADE = 12.0, 1.2, 3.2, 0.3  # how long the first and the last mask stay

STYLE = """\
.cell { fill: var(--cell); }
.mask path { fill: none; }
.equal { fill: none; stroke: var(--equal); stroke-width: 1.8; }
.curve { fill: none; stroke: var(--edge); stroke-width: 2.5; stroke-linejoin: round; }
.axis { fill: none; stroke: var(--line); stroke-width: 1.5; }
.now { stroke: var(--ink); stroke-width: 1.5; }
.future { fill: var(--panel); fill-opacity: .78; transform-box: fill-box; transform-origin: right; }
.value { font-weight: 650; text-anchor: end; }
.tick { text-anchor: end; }
"""


@dataclass(frozen=True)
class Snapshot:
    """The mask of one head at a step of training.

    Attributes:
        step: How many steps have been taken.
        tenths: A row for each query and a digit for each key: its edge's probability in tenths, rounded down; 9 is at
            least 0.9.
    """

    step: int
    tenths: tuple[str, ...]


@dataclass(frozen=True)
class Course:
    """A training, as far as the film shows it.

    Attributes:
        tokens: Values of the sequence that the masks belong to, ascending.
        steps: Where accuracy and keys per query were measured, from 0 to the last step.
        accuracy: Share of labels that are right, on other sequences.
        keys: Keys that a query attends on average, on these.
        snapshots: At some of the steps, the last one included.
    """

    tokens: Sequence[int]
    steps: Sequence[int]
    accuracy: Sequence[Number]
    keys: Sequence[Number]
    snapshots: Sequence[Snapshot]

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Course":
        """The course in ``results/clips.json``."""
        curve = record["curve"]
        snapshots = [Snapshot(one["step"], tuple(one["tenths"])) for one in record["snapshots"]]
        return cls(record["tokens"], curve["step"], curve["accuracy"], curve["keys_per_query"], snapshots)


def in_tenths(probability: Tensor) -> list[str]:
    """A mask of probabilities ``(n, n)`` as :class:`Snapshot` holds it.

    Example:
        >>> import torch
        >>> in_tenths(torch.tensor([[0.0, 0.56], [0.09, 1.0]]))
        ['05', '09']
    """
    return ["".join(map(str, row)) for row in (10 * probability).floor().clamp(0, 9).int().tolist()]


def fit_clip(course: Course, path: Path) -> None:
    """Writes the film of a training."""
    n, last = len(course.tokens), course.steps[-1]
    shades = [to_hex(MASK_COLOURS((i + 1) / len(LEVELS))) for i in range(len(LEVELS))]
    at = {step: i for i, step in enumerate(course.steps)}
    film = Film(
        "A mask is fitted while the network learns",
        f"Edge probabilities of one head for a sequence of {n} tokens, sorted by value, during {last:,} steps of "
        f"training. At first a query attends {course.keys[0]:.1f} keys on average, of all kinds, and the accuracy is "
        f"{course.accuracy[0]:.3f}. In the end it attends {course.keys[-1]:.1f}: equal values, which lie in small "
        f"squares along the diagonal, and few others. The accuracy is then {course.accuracy[-1]:.3f}.",
        width=WIDTH,
        height=HEIGHT,
        seconds=SECONDS,
        light={"equal": ORANGE} | {f"p{i}": colour for i, colour in enumerate(shades)},
        dark={f"p{i}": colour for i, colour in enumerate(_DARK)},
        style=STYLE + "\n".join(f".p{i} {{ stroke: var(--p{i}); }}" for i in range(len(LEVELS))),
    )
    film.add(words(24, 38, "Fitting a mask in training", "title"), *_frame(n))
    starts = _starts(len(course.snapshots))
    for i, (snapshot, start) in enumerate(zip(course.snapshots, starts, strict=True)):
        is_last = i == len(starts) - 1
        # A mask hides the one below it, which may then go at once.
        end, fade = (SECONDS - 2 * FADE, FADE) if is_last else (starts[i + 1] + FADE, 0.01)
        moments = [(start, "opacity: 0"), (start + FADE, "opacity: 1"), (end, "opacity: 1"), (end + fade, "opacity: 0")]
        kind = film.moving(*moments) if is_last else f"later {film.moving(*moments)}"
        film.add(f'<g class="mask {kind}">', box(LEFT, TOP, SIDE, SIDE, "cell"), _shades(snapshot, n), "</g>")
        end = SECONDS if is_last else starts[i + 1]
        kind = film.shown(start, None if is_last else end, fade=0.01)
        values = _values(course, at[snapshot.step])
        film.add(f'<g class="{kind if is_last else f"later {kind}"}">{values}</g>')
    film.add(f'<path class="equal" d="{_squares(course.tokens)}"/>')
    film.add(*_curves(film, course, starts))
    film.write(path)


def _starts(n_snapshots: int) -> list[float]:
    """When each mask begins to appear."""
    each = (SECONDS - FIRST - LAST) / max(1, n_snapshots - 2)
    return [0.0, *(FIRST + each * i for i in range(n_snapshots - 1))]


def _frame(n: int) -> list[str]:
    middle = TOP + SIDE / 2
    turned = f"rotate(-90 52 {number(middle)})"
    found = [
        box(LEFT, TOP, SIDE, SIDE, "cell"),
        words(LEFT + SIDE / 2, TOP - 12, "keys", "label", text_anchor="middle"),
        words(52, middle, "queries", "label", text_anchor="middle", transform=turned),
        *_legend(TOP + SIDE + 12),
    ]
    for i, name in enumerate(("accuracy", "keys per query")):
        found.append(words(LEFT, CURVES + CURVE_STEP * i - 12, name, "label"))
    return [*found, words(LEFT, HEIGHT - 20, "training step", "label")]


def _legend(top: int) -> list[str]:
    """What shades and squares mean; the shades go the other way on dark pages."""
    size = 15
    found = [box(LEFT + size * i, top, size, size, "cell", style=f"fill: var(--p{i})") for i in range(len(LEVELS))]
    found.append(words(LEFT + size * len(LEVELS) + 8, top + 13, "edge probability", "label"))
    found.append(box(LEFT + 230, top + 1, size - 2, size - 2, "equal"))
    return [*found, words(LEFT + 250, top + 13, "equal values", "label")]


def _values(course: Course, i: int) -> str:
    right = LEFT + SIDE
    texts = f"{course.accuracy[i]:.3f}", f"{course.keys[i]:.1f} of {len(course.tokens)}"
    found = [words(right, CURVES + CURVE_STEP * row - 12, text, "value") for row, text in enumerate(texts)]
    return "".join([*found, words(right, HEIGHT - 20, f"{course.steps[i]:,} of {course.steps[-1]:,}", "value")])


def _shades(snapshot: Snapshot, n: int) -> str:
    """A path for each shade, whose lines are runs of cells."""
    runs: dict[int, list[str]] = {i: [] for i in range(len(LEVELS))}
    ends = dict.fromkeys(runs, (0, 0))
    for row, digits in enumerate(snapshot.tenths):
        column = 0
        for shade, cells in groupby(sum(int(digit) >= level for level in LEVELS) - 1 for digit in digits):
            width = len(list(cells))
            if shade >= 0:
                x, y = ends[shade]
                runs[shade].append(f"m{column - x} {row - y}h{width}")
                ends[shade] = column + width, row
            column += width
    paths = [f'<path class="p{i}" d="M0 .5{"".join(found)}"/>' for i, found in runs.items() if found]
    place = f"translate({LEFT} {TOP}) scale({number(SIDE / n, 6)})"
    return f'<g transform="{place}" shape-rendering="crispEdges">{"".join(paths)}</g>'


def _squares(tokens: Sequence[int]) -> str:
    """Around the cells of tokens with equal values."""
    cell, start, found = SIDE / len(tokens), 0, []
    for _, equal in groupby(tokens):
        n_equal = len(list(equal))
        if n_equal > 1:
            x, y, size = number(LEFT + cell * start), number(TOP + cell * start), number(cell * n_equal)
            found.append(f"M{x} {y}h{size}v{size}h-{size}z")
        start += n_equal
    return "".join(found)


def _curves(film: Film, course: Course, starts: Sequence[float]) -> list[str]:
    """Accuracy, and keys per query; what is yet to come is pale."""
    n, last = len(course.tokens), course.steps[-1]
    future, now = [], []
    for at, snapshot in zip(starts, course.snapshots, strict=True):
        share = snapshot.step / last
        future.append((at, f"opacity: 1; transform: scaleX({number(1 - share, 4)})"))
        now.append((at, f"transform: translateX({number(SIDE * share)}px)"))
    found = []
    for i, (values, least, most) in enumerate(((course.accuracy, 0.5, 1.0), (course.keys, 0.0, n))):
        top = CURVES + CURVE_STEP * i
        bottom = top + CURVE_HEIGHT
        points = [
            f"{number(LEFT + SIDE * step / last)} {number(bottom - CURVE_HEIGHT * (value - least) / (most - least))}"
            for step, value in zip(course.steps, values, strict=True)
        ]
        found += [
            f'<path class="axis" d="M{LEFT} {top}v{CURVE_HEIGHT}h{SIDE}"/>',
            f'<path class="curve" d="M{"L".join(points)}"/>',
            box(LEFT, top - 3, SIDE + 4, CURVE_HEIGHT + 2, f"future later {film.moving(*future)}"),
            f'<path class="now {film.moving(*now)}" transform="translate({SIDE} 0)" d="M{LEFT} {top}V{bottom}"/>',
            words(LEFT - 8, top + 5, f"{most:g}", "label tick"),
            words(LEFT - 8, bottom + 5, f"{least:g}", "label tick"),
        ]
    return found
