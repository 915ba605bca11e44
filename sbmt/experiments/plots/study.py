"""Draws the figures of studies from their summaries."""

from collections.abc import Mapping
from itertools import cycle
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

from sbmt.experiments.data.repeated_tokens import majority_accuracy, random_mask_ceiling
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, QUIET, SKY, VERMILLION, saved_figure

COLOURS = {"full": BLUE, "scratch": BLUE, "sbm": VERMILLION, "no-loops": VERMILLION, "fitted": GREEN}
COLOURS |= {"random": PURPLE, "window": ORANGE, "reformer": SKY}  # by the prefix of a trial's name; all others are grey


def marks_of(trials: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Returns the plot style of each trial; trials of the same colour have different markers."""
    markers = {colour: cycle("oDs^vPX<>hp*d8H") for colour in (*COLOURS.values(), QUIET)}
    found = {}
    for name, title in trials.items():
        colour = next((colour for begin, colour in COLOURS.items() if name.startswith(begin)), QUIET)
        found[name] = {"color": colour, "marker": next(markers[colour]), "label": title}
    return found


def plot_over_density(axes: Axes, result: dict[str, Any], marks: dict[str, dict[str, Any]]) -> None:
    """Plots the accuracy or perplexity of every run against its density, with lines for simple baselines."""
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
        axes.yaxis.set(major_formatter="{x:,.0f}", minor_formatter="{x:,.0f}")
        axes.axhline(first["frequencies"]["perplexity"], color=INK, linestyle=":", label="frequencies of tokens alone")
    elif "chance" in first:
        axes.axhline(first["chance"], color=INK, linestyle="--", linewidth=1, label="always the commonest label")
    elif result["task"] == "repeated_tokens":
        length, density = first["config"]["length"], np.linspace(0, 1, 101)
        ceiling = [random_mask_ceiling(length, p) for p in density]
        axes.plot(density, ceiling, color=INK, linestyle="--", linewidth=1, label="ceiling of a random mask")
        axes.axhline(majority_accuracy(length), color=INK, linestyle=":", linewidth=1, label="majority guess")
    axes.grid(axis="y")
    seen = f"{first['n_test']:,} test examples" if "n_test" in first else "unseen sequences"
    axes.set_title(f"{result['title']}, {seen}", fontsize=10)


def _legend(axes: Axes, *plotted: Axes) -> None:
    """Draws a legend of everything plotted in the other axes, with each label once."""
    labels = {label: line for ax in plotted for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes.axis("off")
    axes.legend(labels.values(), labels.keys(), loc="center left", fontsize=8.5, borderaxespad=0)


def draw_glue(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Writes a figure of scores against density, with one panel for pre-training and one for each fine-tuning task."""
    marks = marks_of({name: title for one in results.values() for name, title in one["titles"].items()})
    columns = min(2, len(results) + 1)
    rows = ceil((len(results) + 1) / columns)  # the legend occupies one panel
    with saved_figure(path, 3.75 * columns, 3.1 * rows) as figure:
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for ax, result in zip(axes, results.values(), strict=False):
            plot_over_density(ax, result, marks)
        for ax in axes[len(results) :]:
            ax.axis("off")
        _legend(axes[len(results)], *axes[: len(results)])


def draw_study(result: dict[str, Any], path: Path, masks: Mapping[str, Tensor] = MappingProxyType({})) -> None:
    """Writes the figure of a study: training curves, accuracy against density, and any given masks."""
    marks, dots = marks_of(result["titles"]), max(3.4, 0.24 * (len(result["titles"]) + 2))  # in inches, for the legend
    heights = [2.8 + dots, *[2.9] * bool(masks)]
    with saved_figure(path, 7.6, sum(heights)) as figure:
        above, *last = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        curves, (axes, legend) = above.subplots(2, 2, height_ratios=(2.8, dots))
        for ax, name in zip(curves, ("loss", "density"), strict=True):
            for run in result["runs"]:
                look = marks[run["trial"]] | {"label": None, "markevery": 0.25, "markersize": 4, "linewidth": 1.2}
                ax.plot(run["curve"]["step"], run["curve"][name], alpha=0.8, **look)
            ax.set(xlabel="step", title=f"{name} of training batches", xlim=(0, None), ylim=(0, None))
        plot_over_density(axes, result, marks)
        _legend(legend, axes)
        for row in last:
            for ax, (title, mask) in zip(row.subplots(1, len(masks), squeeze=False)[0], masks.items(), strict=True):
                plot_mask(mask, ax, title=title)
