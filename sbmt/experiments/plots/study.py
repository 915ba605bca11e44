"""Figures of a study's results, drawn from its summary alone."""

from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from sbmt.experiments.plots.repeated_tokens import plot_ceiling, plot_majority
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, INK, VERMILLION

_COLUMNS = 4
_WIDTH, _PANEL, _DOTS = 7.6, 1.4, 3.1  # inches: of the figure, the height of a row of trials, and of the dots below
_MARGIN = 0.1  # density up to which there is no room for a label to the left of a dot
_CLOSE = 0.025, 0.05  # dots closer than this share a label; in shares of the axes' width and height
_CLOSE_INTERVALS = 0.04, 0.2  # the same for dots with intervals, whose label is above the interval


def plot_trial(axes: Axes, result: dict[str, Any], trial: str) -> Axes:
    """Loss (blue) and density (vermillion, axis on the right) of a trial's training batches, one line per run.

    Returns:
        The axes of the density, which share the panel with those of the loss.
    """
    right = axes.twinx()
    for run in result["runs"]:
        if run["trial"] == trial:
            curve = run["curve"]
            axes.plot(curve["step"], curve["loss"], color=BLUE, linewidth=1.3, alpha=0.85)
            right.plot(curve["step"], curve["density"], color=VERMILLION, linewidth=1.3, alpha=0.85)
    highest = max(max(run["curve"]["loss"]) for run in result["runs"])
    axes.set(xlim=(0, None), ylim=(0, 1.03 * highest))
    right.set_ylim(0, 1.03)
    right.spines.right.set_visible(True)
    axes.tick_params(axis="y", labelcolor=BLUE)
    right.tick_params(axis="y", labelcolor=VERMILLION)
    axes.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    right.set_yticks([0, 0.5, 1])
    title = fill(f"{list(result['titles']).index(trial) + 1} · {result['titles'][trial]}", 23, break_on_hyphens=False)
    axes.set_title(title, fontsize=8.5)
    return right


def plot_accuracy_over_density(axes: Axes, result: dict[str, Any]) -> None:
    """One dot per run with its trial's number, and the accuracy of guessing.

    For the synthetic task the ceiling of a random mask is drawn as well, for the others the 95 % intervals.
    """
    first = result["runs"][0]
    if "chance" in first:
        axes.axhline(first["chance"], color=INK, linestyle=":", linewidth=1, label="always the commonest label")
        axes.set(xlabel="density", ylabel="accuracy", xlim=(-0.02, 1.04))
    elif result["task"] == "repeated_tokens":
        plot_ceiling(axes, first["config"]["length"])
        plot_majority(axes, first["config"]["length"])
    else:
        axes.set(xlabel="density", ylabel="accuracy", xlim=(-0.02, 1.04), ylim=(-0.02, 1.02))
    for run in result["runs"]:
        place = [run["test"]["density"]], [run["test"]["accuracy"]]
        axes.plot(*place, "o", color=BLUE, markersize=5, alpha=0.8)
        if "interval" in run:
            axes.vlines(place[0], *run["interval"], color=BLUE, linewidth=1, alpha=0.5)
    _number(axes, result)


def dot_labels(dots: list[tuple[float, float, int]], close: tuple[float, float]) -> list[tuple[float, float, str]]:
    """One label for all dots that are close together.

    Args:
        dots: x, y and number of each.
        close: The largest distance, in x and in y, between a dot and its nearest neighbour with the same label.

    Returns:
        For each label the smallest x and the largest y of its dots, and their numbers, of which runs are shortened.

    Example:
        >>> dots = [(0.0, 0.0, 1), (1.0, 1.0, 2), (1.0, 1.5, 3), (1.0, 2.0, 4)]
        >>> dot_labels(dots, (0.5, 0.5))
        [(0.0, 0.0, '1'), (1.0, 2.0, '2–4')]
    """
    groups: list[list[tuple[float, float, int]]] = []
    for dot in dots:
        near = [g for g in groups if any(abs(dot[0] - x) <= close[0] and abs(dot[1] - y) <= close[1] for x, y, _ in g)]
        groups = [g for g in groups if g not in near] + [[dot, *(other for g in near for other in g)]]
    labels = []
    for group in groups:
        xs, ys, numbers = zip(*group, strict=True)
        labels.append((min(xs), max(ys), _shortened(sorted(set(numbers)))))
    return labels


def _shortened(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    texts = (f"{s[0]}–{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans)
    return ", ".join(texts)


def _number(axes: Axes, result: dict[str, Any]) -> None:
    """Writes the trials' numbers beside their dots: above the intervals, or to the left where there is room."""
    numbers = {name: number for number, name in enumerate(result["titles"], 1)}
    dots = [
        (run["test"]["density"], run.get("interval", [run["test"]["accuracy"]])[-1], numbers[run["trial"]])
        for run in result["runs"]
    ]
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    has_intervals = "interval" in result["runs"][0]
    close = _CLOSE_INTERVALS if has_intervals else _CLOSE
    for x, y, text in dot_labels(dots, (close[0] * (right - left), close[1] * (high - low))):
        if has_intervals:
            place, sides = (0, 7), ("center", "center")
        else:
            place, sides = ((-6, 0), ("right", "center")) if x > _MARGIN else ((7, 0), ("left", "center"))
        axes.annotate(
            text,
            (x, y),
            xytext=place,
            textcoords="offset points",
            ha=sides[0],
            va=sides[1],
            fontsize=9,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )


def draw_study(result: dict[str, Any], path: Path) -> None:
    """Writes the figure of a study, given its :func:`~sbmt.experiments.studies.study.summary`.

    Loss and density over training are above, a panel for each trial; accuracy against density is below.
    """
    n_rows = ceil(len(result["titles"]) / _COLUMNS)
    heights = [n_rows * _PANEL + 0.35, _DOTS]
    with saved_figure(path, _WIDTH, sum(heights)) as figure:
        above, below = figure.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
        _draw_trials(above, result, n_rows)
        axes = below.subplots()
        plot_accuracy_over_density(axes, result)
        is_test = "n_test" in result["runs"][0]
        seen = "test examples, 95 % intervals" if is_test else "unseen sequences"
        axes.set_title(f"{seen}; numbers are those of the panels above")
        axes.legend(loc="best", fontsize=9)


def _draw_trials(figure: SubFigure, result: dict[str, Any], n_rows: int) -> None:
    names = list(result["titles"])
    places = figure.subplots(n_rows, _COLUMNS, sharex=True, squeeze=False).ravel()
    for at, axes in enumerate(places):
        if at >= len(names):
            axes.axis("off")
            continue
        right = plot_trial(axes, result, names[at])
        row, column = divmod(at, _COLUMNS)
        is_left, is_right = column == 0, column == _COLUMNS - 1 or at == len(names) - 1 < _COLUMNS
        axes.tick_params(labelsize=8, labelbottom=row == n_rows - 1, labelleft=is_left)
        right.tick_params(labelsize=8, labelright=is_right)
        if row == n_rows - 1:
            axes.set_xlabel("step", fontsize=8.5)
        if is_left:
            axes.set_ylabel("loss", fontsize=8.5, color=BLUE)
        if is_right:
            right.set_ylabel("density", fontsize=8.5, color=VERMILLION)
    figure.suptitle("training batches, one line per seed", x=0.008, ha="left", fontsize=10.5)
