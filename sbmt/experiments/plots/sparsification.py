"""How much of full attention masks of several kinds see, against how many pairs they hold."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, PercentFormatter

from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import GREEN, INK, ORANGE, PURPLE, SKY

STYLES = {
    "fitted": {"color": GREEN, "linewidth": 2.6, "zorder": 5},
    "k-means": {"color": SKY},
    "hashing": {"color": SKY, "linestyle": "--"},
    "window": {"color": ORANGE},
    "window and random": {"color": ORANGE, "linestyle": "--"},
    "random": {"color": PURPLE},
    "ideal rates": {"color": INK, "linestyle": "--", "linewidth": 1.2},
    "oracle": {"color": INK, "linestyle": ":"},
}
SHARES = 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0
_COLUMNS, _PANEL = 3, (2.6, 2.5)  # inches


def plot_attention_mass(axes: Axes, result: dict[str, Any], title: str) -> None:
    """One line per kind of mask: the share of attention along its edges over the share of pairs that are edges."""
    kinds = [kind["kind"] for kind in result["levels"][0]]
    for name, style in STYLES.items():
        points = [level[kinds.index(name)] for level in result["levels"]]
        x, y = [p["density"] for p in points], [p["attention_mass"] for p in points]
        axes.plot(x, y, marker="o", markersize=3.5, label=name, **style)  # type: ignore[arg-type]
    axes.set(title=title, xscale="log", ylim=(0, 1.02))
    low, high = axes.get_xlim()
    shown = [share for share in SHARES if low <= share <= high]
    axes.set_xticks(shown, [f"{share:.0%}".replace("%", " %") for share in shown])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(axis="y")


def draw_attention_mass(results: Sequence[dict[str, Any]], path: Path, titles: Sequence[str] = ()) -> None:
    """One panel per :func:`~sbmt.experiments.sparsification.compare.report`, titled by its task if not otherwise."""
    titles = titles or [result["task"] for result in results]
    columns = min(_COLUMNS, len(results))
    rows = ceil(len(results) / columns)
    with saved_figure(path, max(5.0, columns * _PANEL[0]), rows * _PANEL[1] + 0.9) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).flat
        for axes, result, title in zip(panels, results, titles, strict=False):
            plot_attention_mass(axes, result, title)
        for axes in list(panels)[len(results) :]:
            axes.remove()
        figure.supxlabel("share of pairs that are edges", fontsize=9.5)
        figure.supylabel("attention along them", fontsize=9.5)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, fontsize=8.5)
