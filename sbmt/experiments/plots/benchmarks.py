"""The benchmarks' figures."""

from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from sbmt.errors import SbmtError
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, QUIET, VERMILLION

Cases = list[dict[str, Any]]
KINDS = {"near-constant": VERMILLION, "structured": BLUE}
STEPS = (
    ("sdpa", "n", BLUE, "full attention"),
    ("sbm", "n", GREEN, "fitted mask, 16 keys per query"),
    ("sbm", "shared", VERMILLION, "the same, one graph for all heads"),
)


def draw_benchmarks(result: dict[str, Any], path: Path) -> None:
    """Writes what the suites ``attention`` and ``fitted`` found, whichever of the two there are.

    The first is the time of SBM attention over that of full attention, against density and against n; the second the
    time of a training step with a fitted mask and that of full attention, against n.
    """
    found = {name: one["found"]["cases"] for name, one in result["suites"].items() if name in ("attention", "fitted")}
    if not found:
        do = "run sbmt bench --suite attention"
        raise SbmtError("results of the suite attention or fitted", list(result["suites"]), do)
    with saved_figure(path, 9.5, 3.9 * len(found)) as figure:
        rows = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
        for row, (name, cases) in zip(rows, found.items(), strict=True):
            if name == "fitted":
                _draw_steps(row.subplots(), cases)
                continue
            left, right = row.subplots(1, 2, sharey=True)
            _draw_ratio(left, [case for case in cases if "density" in case["sweeps"]], "density")
            _draw_ratio(right, [case for case in cases if "n" in case["sweeps"]], "n")
            left.set(xlabel="density", ylabel="time / time of full attention", title="4,096 tokens")
            right.set(xlabel="tokens n", title="41 keys per query")
            row.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)


def _draw_ratio(axes: Axes, cases: Cases, over: str) -> None:
    """A line per kind of input and pass, with the quartiles as a band; grey is attention by message passing."""
    axes.axhline(1, color=INK, linewidth=1)
    lines = [("sbm", kind, way, colour) for kind, colour in KINDS.items() for way in (True, False)]
    for name, kind, is_training, colour in [*lines, ("pyg", "structured", True, QUIET)]:
        mine = [case for case in cases if case["kind"] == kind and case["is_training"] is is_training]
        mine = sorted((case for case in mine if "ratio" in case["results"].get(name, {})), key=lambda case: case[over])
        points = [(case[over], case["results"][name]) for case in mine]
        x = [place for place, _ in points]
        middle, low, high = ([one[key] for _, one in points] for key in ("ratio", "ratio_low", "ratio_high"))
        what = "training step" if is_training else "forward only"
        label = f"{kind}, {what}" if name == "sbm" else f"by {name}, {what}"
        axes.plot(x, middle, "-o" if is_training else ":s", markersize=4, color=colour, label=label)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xscale="log", yscale="log")
    values = sorted({case[over] for case in cases})
    axes.set_xticks(values, [f"{100 * x:.3g} %" if over == "density" else f"{x:,.0f}" for x in values], fontsize=8)
    axes.set_xticks([], minor=True)
    axes.grid(axis="y")


def _draw_steps(axes: Axes, cases: Cases) -> None:
    """Seconds of a training step against n in the suite ``fitted``, with the place marked where the lines cross."""
    for name, sweep, colour, title in STEPS:
        steps = [case for case in cases if case["is_training"] and sweep in case["sweeps"]]
        points = [(case["n"], case["results"][name]) for case in steps if "median" in case["results"][name]]
        if not points:
            continue
        n = [n for n, _ in points]
        low, middle, high = ([one[x] / 1e3 for _, one in points] for x in ("low", "median", "high"))
        axes.plot(n, middle, "-o", markersize=4, color=colour, label=title)
        axes.fill_between(n, low, high, color=colour, alpha=0.15)
        full = [case["results"]["sdpa"]["median"] / 1e3 for case in steps if "median" in case["results"]["sdpa"]]
        if (where := crossing(n, middle, full)) is not None:
            axes.plot(*where, "o", markersize=9, markerfacecolor="none", color=INK)
            text = f"{round(where[0], -2):,.0f} tokens"
            axes.annotate(text, where, xytext=(-8, 8), textcoords="offset points", ha="right", color=INK)
    axes.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="seconds of a training step", title="fitted masks")
    sizes = sorted({case["n"] for case in cases if "n" in case["sweeps"]})
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes], rotation=30)
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.legend(loc="upper left")


def crossing(x: list[int], ours: list[float], theirs: list[float]) -> tuple[float, float] | None:
    """Where our line begins to lie below theirs, straight between points on logarithmic scales; None if nowhere.

    Example:
        >>> [round(a, 3) for a in crossing([1, 4], [2.0, 2.0], [1.0, 4.0])]
        [2.0, 2.0]
    """
    gaps = np.log(ours[: len(theirs)]) - np.log(theirs[: len(ours)])
    for i in range(len(gaps) - 1):
        if gaps[i] > 0 >= gaps[i + 1]:
            share = gaps[i] / (gaps[i] - gaps[i + 1])
            between = [exp((1 - share) * log(line[i]) + share * log(line[i + 1])) for line in (x, ours)]
            return between[0], between[1]
    return None
