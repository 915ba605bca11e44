"""The benchmarks' figure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from sbmt.errors import SbmtError
from sbmt.experiments.plots.save import save_figure
from sbmt.experiments.plots.style import BLUE, INK, QUIET, VERMILLION, use_style

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
    with use_style():
        figure = Figure(figsize=(9.5, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        draw_ratio(left, [case for case in cases if "density" in case["sweeps"]], "density")
        draw_ratio(right, [case for case in cases if "n" in case["sweeps"]], "n")
        fixed = " and ".join(sorted({f"{case['n']:,}" for case in cases if "density" in case["sweeps"]}))
        left.set(xlabel="density, %", ylabel="time / time of full attention", title=f"{fixed} tokens")
        right.set(xlabel="tokens n", title="41 keys per query")
        _ticks(left, sorted({case["density"] for case in cases if "density" in case["sweeps"]}), _as_percent)
        _ticks(right, sorted({case["n"] for case in cases if "n" in case["sweeps"]}), lambda x: f"{x:,.0f}")
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        left.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        left.yaxis.set_minor_formatter(lambda y, _: "")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
        save_figure(figure, path)


def draw_ratio(axes: Axes, cases: list[dict[str, Any]], over: str) -> None:
    """One line per kind of input and pass, with the quartiles as a band; 1 is full attention's time.

    Args:
        axes: Where to draw, on logarithmic scales.
        cases: Cases of the suite ``attention``.
        over: Their key on the horizontal axis.
    """
    axes.set(xscale="log", yscale="log")
    axes.axhline(1, color=INK, linewidth=1)
    axes.grid(axis="y")
    for kind, colour in COLOURS.items():
        for is_training, (line, marker, what) in LINES.items():
            points = sorted(
                (case[over], *(case["results"]["sbm"][x] for x in ("ratio", "ratio_low", "ratio_high")))
                for case in cases
                if case["kind"] == kind and case["is_training"] == is_training and "ratio" in case["results"]["sbm"]
            )
            if points:
                x, ratio, low, high = zip(*points, strict=True)
                label = f"{kind}, {what}"
                axes.plot(x, ratio, line, marker=marker, markersize=4, color=colour, label=label)
                axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    rivals(axes, cases, over)


def rivals(axes: Axes, cases: list[dict[str, Any]], over: str) -> None:
    """The same training step with its attention by others, in grey, on structured input."""
    for name, line in (("pyg", "--"), ("torch.sparse", "-.")):
        points = sorted(
            (case[over], case["results"][name]["ratio"])
            for case in cases
            if case["kind"] == "structured" and case["is_training"] and "ratio" in case["results"].get(name, {})
        )
        if points:
            axes.plot(*zip(*points, strict=True), line, color=QUIET, linewidth=1.2, label=f"by {name}, training step")


def _ticks(axes: Axes, values: Sequence[int | float], label: Callable[[float], str]) -> None:
    axes.set_xticks(values, [label(x) for x in values])
    axes.set_xticks([], minor=True)


def _as_percent(share: float) -> str:
    return f"{100 * share:.3g}"
