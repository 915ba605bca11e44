"""The benchmarks' figures."""

from collections.abc import Callable
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import FuncFormatter, LogLocator

from sbmt.errors import SbmtError
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, QUIET, VERMILLION

COLOURS = {"near-constant": VERMILLION, "structured": BLUE}
STEPS = (
    ("sdpa", "n", BLUE, "full attention"),
    ("sbm", "n", GREEN, "fitted mask, 16 keys per query"),
    ("sbm", "shared", VERMILLION, "the same, one graph for all heads"),
)
LINES = {True: ("-", "o", "training step"), False: (":", "s", "forward only")}


def draw_benchmarks(result: dict[str, Any], path: Path) -> None:
    """Writes what the suites ``attention`` and ``fitted`` found, whichever of the two there are.

    The first is the time of SBM attention over that of full attention, against density and against n; the second the
    time of a training step with a fitted mask and that of full attention, against n.

    Raises:
        SbmtError: If the results file holds neither.
    """
    found = {name: one["found"]["cases"] for name, one in result["suites"].items() if name in ("attention", "fitted")}
    if not found:
        do = "run sbmt bench --suite attention"
        raise SbmtError("results of the suite attention or fitted", list(result["suites"]), do)
    with saved_figure(path, 9.5, 3.9 * len(found)) as figure:
        rows = figure.subfigures(len(found), 1, squeeze=False)[:, 0]
        for row, (name, cases) in zip(rows, found.items(), strict=True):
            if name == "attention":
                _draw_attention(row, cases)
            else:
                draw_steps(row.subplots(), cases)


def _draw_attention(figure: FigureBase, cases: list[dict[str, Any]]) -> None:
    dense, long = ([case for case in cases if sweep in case["sweeps"]] for sweep in ("density", "n"))
    left, right = figure.subplots(1, 2, sharey=True)
    draw_ratio(left, dense, "density", lambda share: f"{100 * share:.3g}")
    draw_ratio(right, long, "n", lambda n: f"{n:,.0f}")
    fixed = " and ".join(sorted({f"{case['n']:,}" for case in dense}))
    left.set(xlabel="density, %", ylabel="time / time of full attention", title=f"{fixed} tokens")
    right.set(xlabel="tokens n", title="41 keys per query")
    left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    left.yaxis.set_minor_formatter(lambda y, _: "")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)


def draw_steps(axes: Axes, cases: list[dict[str, Any]]) -> None:
    """Seconds of a training step against n in the suite ``fitted``, with the place marked where the lines cross."""
    sizes: list[int] = []
    for name, sweep, colour, title in STEPS:
        steps = [case for case in cases if case["is_training"] and sweep in case["sweeps"]]
        points = [(case["n"], case["results"][name]) for case in steps if "median" in case["results"][name]]
        n = [n for n, _ in points]
        low, middle, high = ([one[x] / 1e3 for _, one in points] for x in ("low", "median", "high"))
        axes.plot(n, middle, "-o", markersize=4, color=colour, label=title)
        axes.fill_between(n, low, high, color=colour, alpha=0.15)
        sizes = sizes or [case["n"] for case in steps]
        full = [case["results"]["sdpa"]["median"] / 1e3 for case in steps if "median" in case["results"]["sdpa"]]
        if (where := crossing(n, middle, full)) is not None:
            axes.plot(*where, "o", markersize=9, markerfacecolor="none", color=INK)
            text = f"{round(where[0], -2):,.0f} tokens"
            axes.annotate(text, where, xytext=(-8, 8), textcoords="offset points", ha="right", color=INK)
    axes.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="seconds of a training step")
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes], rotation=30)
    axes.minorticks_off()
    axes.grid(axis="y")
    axes.set_title("fitted masks")
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


def draw_ratio(axes: Axes, cases: list[dict[str, Any]], over: str, label: Callable[[float], str]) -> None:
    """A line per kind of input and pass, with the quartiles as a band; 1 is full attention's time.

    Training steps whose attention is computed by other libraries, on structured input, are drawn in grey. ``over`` is
    the cases' key on the horizontal axis, whose numbers ``label`` turns into text.
    """
    axes.set(xscale="log", yscale="log")
    axes.axhline(1, color=INK, linewidth=1)
    axes.grid(axis="y")
    for kind, colour in COLOURS.items():
        for is_training, (line, marker, what) in LINES.items():
            if points := _points(cases, "sbm", kind, is_training, over):
                x, ratio, low, high = zip(*points, strict=True)
                axes.plot(x, ratio, line, marker=marker, markersize=4, color=colour, label=f"{kind}, {what}")
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for name, line in (("pyg", "--"), ("torch.sparse", "-.")):
        if points := _points(cases, name, "structured", True, over):
            x, ratio, _, _ = zip(*points, strict=True)
            axes.plot(x, ratio, line, color=QUIET, linewidth=1.2, label=f"by {name}, training step")
    values = sorted({case[over] for case in cases})
    axes.set_xticks(values, [label(x) for x in values])
    axes.set_xticks([], minor=True)


def _points(cases: list[dict[str, Any]], name: str, kind: str, is_training: bool, over: str) -> list[tuple[Any, ...]]:
    """Place, ratio and its quartiles for every case in which a contestant ran."""
    return sorted(
        (case[over], *(case["results"][name][x] for x in ("ratio", "ratio_low", "ratio_high")))
        for case in cases
        if case["kind"] == kind and case["is_training"] == is_training and "ratio" in case["results"].get(name, {})
    )
