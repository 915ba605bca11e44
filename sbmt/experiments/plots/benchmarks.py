"""The benchmarks' figure."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator

from sbmt.errors import SbmtError
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, INK, QUIET, VERMILLION

COLOURS = {"near-constant": VERMILLION, "structured": BLUE}
LINES = {True: ("-", "o", "training step"), False: (":", "s", "forward only")}


def draw_benchmarks(result: dict[str, Any], path: Path) -> None:
    """Writes the time of SBM attention over that of full attention, against density and against n.

    Args:
        result: A results file of ``sbmt bench`` that holds the suite ``attention``.
        path: Where the figure goes.

    Raises:
        SbmtError: If it does not hold that suite.
    """
    if "attention" not in result["suites"]:
        raise SbmtError("results of the suite attention", list(result["suites"]), "run sbmt bench --suite attention")
    cases = result["suites"]["attention"]["found"]["cases"]
    dense, long = ([case for case in cases if sweep in case["sweeps"]] for sweep in ("density", "n"))
    with saved_figure(path, 9.5, 3.9) as figure:
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


def draw_ratio(axes: Axes, cases: list[dict[str, Any]], over: str, label: Callable[[float], str]) -> None:
    """A line per kind of input and pass, with the quartiles as a band; 1 is full attention's time.

    Training steps whose attention is computed by other libraries, on structured input, are drawn in grey.

    Args:
        axes: Where to draw, on logarithmic scales.
        cases: Cases of the suite ``attention``.
        over: Their key on the horizontal axis.
        label: Turns a number on that axis into its label.
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
