"""Figures of studies, drawn from their summaries alone."""

from collections.abc import Mapping
from itertools import cycle
from math import ceil
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.repeated_tokens import plot_ceiling, plot_majority
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION

COLOURS = {"full": BLUE, "scratch": BLUE, "sbm": VERMILLION, "no-loops": VERMILLION, "fitted": GREEN}
COLOURS |= {"random": PURPLE, "window": ORANGE, "reformer": SKY}
"""By how a trial's name begins; others are grey."""
_COLUMNS = 4
_WIDTH, _CURVES, _DOTS = 7.6, 1.4, 3.4  # inches: of the figure, the height of a row of trials, and of the dots below


def marks_of(trials: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How each trial is marked: those of one colour have different markers."""
    markers = {colour: cycle("oDs^vPX<>hp*d8H") for colour in (*COLOURS.values(), QUIET)}
    found = {}
    for name, title in trials.items():
        colour = next((colour for begin, colour in COLOURS.items() if name.startswith(begin)), QUIET)
        found[name] = {"color": colour, "marker": next(markers[colour]), "label": title}
    return found


def plot_over_density(axes: Axes, result: dict[str, Any], marks: dict[str, dict[str, Any]]) -> None:
    """The accuracy, or perplexity, of every run over its density, and lines for what guessing reaches."""
    first = result["runs"][0]
    is_language = "frequencies" in first
    for run in result["runs"]:
        test, mark = run["test"], marks[run["trial"]]
        if "interval" in run:
            axes.vlines(test["density"], *run["interval"], color=mark["color"], linewidth=1, alpha=0.6)
        number = test["metrics"]["perplexity"] if is_language else test["accuracy"]
        axes.plot([test["density"]], [number], linestyle="", markersize=6, alpha=0.85, **mark)
    axes.set(xlabel="density", ylabel="perplexity" if is_language else "accuracy", xlim=(-0.04, 1.06))
    if is_language:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_minor_formatter("{x:,.0f}")
        axes.axhline(first["frequencies"]["perplexity"], color=INK, linestyle=":", label="frequencies of tokens alone")
    elif "chance" in first:
        axes.axhline(first["chance"], color=INK, linestyle="--", linewidth=1, label="always the commonest label")
    elif result["task"] == "repeated_tokens":
        plot_ceiling(axes, first["config"]["length"])
        plot_majority(axes, first["config"]["length"])
    axes.grid(axis="y")
    seen = f"{first['n_test']:,} test examples" if "n_test" in first else "unseen sequences"
    axes.set_title(f"{result['title']}, {seen}", fontsize=10)


def _legend(axes: Axes, *plotted: Axes) -> None:
    """What is drawn in some axes, each once, in place of these."""
    labels = {label: line for ax in plotted for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes.axis("off")
    axes.legend(labels.values(), labels.keys(), loc="center left", fontsize=8.5, borderaxespad=0)


def draw_glue(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes the figure of pre-training and fine-tuning: a panel for each, perplexity or accuracy against density.

    A trial has the same mark in every panel and for all its seeds.
    """
    marks = marks_of({name: title for one in results.values() for name, title in one["titles"].items()})
    columns = min(3, len(results) + 1)
    rows = ceil((len(results) + 1) / columns)  # the legend has a place of its own
    with saved_figure(path, 3.75 * columns, 3.1 * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for ax, result in zip(axes, results.values(), strict=False):
            plot_over_density(ax, result, marks)
        for ax in axes[len(results) :]:
            ax.axis("off")
        _legend(axes[len(results)], *axes[: len(results)])


def draw_study(result: dict[str, Any], path: Path, masks: Mapping[str, Tensor] = MappingProxyType({})) -> None:
    """Writes the figure of a study, given its :func:`~sbmt.experiments.studies.study.summary`.

    A panel for each trial shows its training; accuracy against density is below, and then masks by their titles.
    """
    n_rows = ceil(len(result["titles"]) / _COLUMNS)
    heights = [n_rows * _CURVES + 0.35, _DOTS, *[2.9] * bool(masks)]
    with saved_figure(path, _WIDTH, sum(heights)) as figure:
        above, below, *last = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _draw_curves(above, result, n_rows)
        axes, legend = below.subplots(1, 2, width_ratios=(1.6, 1))
        plot_over_density(axes, result, marks_of(result["titles"]))
        _legend(legend, axes)
        for row in last:
            for ax, (title, mask) in zip(row.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True):
                plot_mask(mask, ax, title=title)


def _draw_curves(figure: SubFigure, result: dict[str, Any], n_rows: int) -> None:
    """Loss (blue) and density (vermillion, axis on the right) of training batches, a panel a trial, a line a run."""
    highest = max(max(run["curve"]["loss"]) for run in result["runs"])
    places = figure.subplots(n_rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, (trial, title) in zip(places, result["titles"].items(), strict=False):
        right = ax.twinx()
        for run in result["runs"]:
            if run["trial"] == trial:
                curve = run["curve"]
                ax.plot(curve["step"], curve["loss"], color=BLUE, linewidth=1.3, alpha=0.85)
                right.plot(curve["step"], curve["density"], color=VERMILLION, linewidth=1.3, alpha=0.85)
        ax.set(xlim=(0, None), ylim=(0, 1.03 * highest))
        ax.xaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
        ax.set_title(fill(title, 23, break_on_hyphens=False), fontsize=8.5)
        right.set(ylim=(0, 1.03), yticks=[0, 0.5, 1])
        right.spines.right.set_visible(True)
        ax.tick_params(axis="y", labelcolor=BLUE, labelsize=8)
        right.tick_params(axis="y", labelcolor=VERMILLION, labelsize=8)
    for ax in places[len(result["titles"]) :]:
        ax.axis("off")
    figure.supxlabel("step", fontsize=8.5)
    figure.suptitle("loss (left) and density (right) of training batches, one line per seed", fontsize=10.5)
