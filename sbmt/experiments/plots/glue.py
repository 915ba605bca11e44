"""The accuracy of each attention after pre-training and fine-tuning, against the density of its masks."""

from collections.abc import Callable
from itertools import cycle
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from sbmt.errors import SbmtError
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION

Mark = tuple[str, str, str]
"""Colour, marker, and whether it is filled: ``full`` or ``none``."""

MARKS: dict[str, Mark] = {
    "full": (BLUE, "o", "full"),
    "full-long": (BLUE, "<", "full"),
    "scratch": (BLUE, "o", "none"),
    "sbm": (VERMILLION, "D", "full"),
    "sbm-loops": (VERMILLION, "D", "none"),
    "random-equal": (PURPLE, "s", "full"),
    "window": (ORANGE, "s", "full"),
    "linear": (QUIET, "^", "full"),
    "nystromformer": (QUIET, "v", "full"),
    "performer": (QUIET, "P", "full"),
    "linformer": (QUIET, "X", "full"),
    "reformer": (SKY, "h", "full"),
}
_OTHERS: tuple[Mark, ...] = tuple((QUIET, marker, fill) for fill in ("full", "none") for marker in "<>p*d8H")
COMMONEST: dict[str, Any] = {"color": INK, "linestyle": "--", "linewidth": 1.1, "label": "always the commonest label"}
FREQUENCIES: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.4, "label": "frequencies of tokens alone"}
_NEAR, _STEP = 0.02, 0.03  # densities closer than the first are drawn the second apart
_PANEL = 3.75, 3.1  # inches


def marks_of(names: list[str]) -> dict[str, Mark]:
    """How each trial is marked: as :data:`MARKS` says, other trials in grey."""
    others = cycle(_OTHERS)
    return {name: MARKS[name] if name in MARKS else next(others) for name in names}


def sideways(result: dict[str, Any]) -> dict[str, float]:
    """How far each trial is moved along the density axis, so that trials of nearly equal density are side by side.

    Trials are ordered by their mean density over seeds. Neighbours closer than 0.02 form a group, which is spread
    around its place in steps of 0.03.

    Example:
        >>> found = {"full": 1.0, "sbm": 0.2, "linear": 1.0}
        >>> runs = [{"trial": t, "test": {"density": d}} for t, d in found.items()]
        >>> sideways({"titles": {"full": "", "sbm": "", "linear": ""}, "runs": runs})
        {'sbm': 0.0, 'full': -0.015, 'linear': 0.015}
    """
    of_trial: dict[str, list[float]] = {}
    for run in result["runs"]:
        of_trial.setdefault(run["trial"], []).append(run["test"]["density"])
    means = {trial: mean(densities) for trial, densities in of_trial.items()}
    groups: list[list[str]] = []
    for trial in sorted(means, key=lambda name: means[name]):
        if groups and means[trial] - means[groups[-1][-1]] < _NEAR:
            groups[-1].append(trial)
        else:
            groups.append([trial])
    return {trial: _STEP * (at - (len(group) - 1) / 2) for group in groups for at, trial in enumerate(group)}


def plot_task(axes: Axes, result: dict[str, Any], marks: dict[str, Mark]) -> None:
    """Accuracy of every run of a task over its density, with 95 % intervals and the accuracy of the commonest label."""
    first = result["runs"][0]
    _plot_dots(axes, result, marks, lambda run: run["test"]["accuracy"])
    axes.axhline(first["chance"], zorder=1, **COMMONEST)
    axes.set_ylabel("accuracy")
    axes.set_title(f"{result['title']}, {first['n_test']:,} test examples", fontsize=10)


def plot_perplexity(axes: Axes, result: dict[str, Any], marks: dict[str, Mark]) -> None:
    """Perplexity of every masked language model over its density, with that of the frequencies of tokens alone."""
    first, alone = result["runs"][0], result["runs"][0]["frequencies"]["perplexity"]
    _plot_dots(axes, result, marks, lambda run: run["test"]["metrics"]["perplexity"])
    axes.axhline(alone, zorder=1, **FREQUENCIES)
    shown = [alone, *(run["test"]["metrics"]["perplexity"] for run in result["runs"])]
    axes.set(yscale="log", ylim=(min(shown) / 1.15, max(shown) * 1.15), ylabel="perplexity, smaller is better")
    is_wide = max(shown) > 5 * min(shown)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_wide else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.6g}"))
    axes.set_title(f"{result['title'].capitalize()}, {first['n_test']:,} test blocks", fontsize=10)


def _plot_dots(
    axes: Axes, result: dict[str, Any], marks: dict[str, Mark], number: Callable[[dict[str, Any]], float]
) -> None:
    """One mark per run, and a thin line over its interval where it has one."""
    aside = sideways(result)
    for run in result["runs"]:
        colour, marker, fill = marks[run["trial"]]
        density = run["test"]["density"] + aside[run["trial"]]
        if "interval" in run:
            axes.vlines(density, *run["interval"], color=colour, linewidth=1, alpha=0.6, zorder=2)
        axes.plot([density], [number(run)], marker, **_look(colour, fill), zorder=3)
    axes.grid(axis="y")
    note = ", about equal ones side by side" if any(aside.values()) else ""
    axes.set(xlabel=f"density{note}", xlim=(-0.04, 1.14))


def _look(colour: str, fill: str) -> dict[str, Any]:
    inside = "white" if fill == "none" else colour
    return {"markersize": 6.5, "markerfacecolor": inside, "markeredgecolor": colour, "markeredgewidth": 1.3}


def draw_glue(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes the figure of pre-training and fine-tuning: a panel for each, perplexity or accuracy against density.

    A trial has the same mark in every panel and for all its seeds. Accuracies have a 95 % interval, which follows from
    the number of test examples. Trials of nearly equal density are moved aside, see :func:`sideways`.

    The results are some of what :func:`~sbmt.experiments.studies.language.run_language_studies` returns.

    Raises:
        SbmtError: If there are no results, or the format is unknown.
    """
    if not results:
        raise SbmtError("results of at least one study", "none", "run sbmt glue first")
    titles = {trial: title for result in results.values() for trial, title in result["titles"].items()}
    marks = marks_of(list(titles))
    columns = 2 if len(results) in (1, 3) else 3
    rows = ceil((len(results) + 1) / columns)  # the legend has a place of its own
    with saved_figure(path, _PANEL[0] * columns, _PANEL[1] * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        lines = []
        for ax, result in zip(axes, results.values(), strict=False):
            is_mlm = "frequencies" in result["runs"][0]
            (plot_perplexity if is_mlm else plot_task)(ax, result, marks)
            lines.append(FREQUENCIES if is_mlm else COMMONEST)
        for ax in axes[len(results) :]:
            ax.axis("off")
        handles = [
            Line2D([], [], linestyle="", marker=marker, label=titles[trial], **_look(colour, fill))
            for trial, (colour, marker, fill) in marks.items()
        ]
        handles += [Line2D([], [], **line) for line in (FREQUENCIES, COMMONEST) if line in lines]
        if COMMONEST in lines:
            handles.append(Line2D([], [], linestyle="", marker="|", markersize=9, color=QUIET, label="95 % interval"))
        axes[len(results)].legend(handles=handles, loc="center left", fontsize=8.5, borderaxespad=0)
