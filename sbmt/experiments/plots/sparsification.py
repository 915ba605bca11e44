"""How much of full attention masks of several kinds see, against how many pairs they hold."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.ticker import NullFormatter, PercentFormatter

from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import GREEN, INK, ORANGE, PURPLE, SKY

STYLES: dict[str, dict[str, Any]] = {
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


def draw_attention_mass(results: Sequence[dict[str, Any]], path: Path, titles: Sequence[str] = ()) -> None:
    """One panel per :func:`~sbmt.experiments.sparsification.compare.report`, titled by its task if not otherwise.

    A line per kind of mask: the share of attention along its edges over the share of pairs that are edges.
    """
    columns = min(3, len(results))
    rows = ceil(len(results) / columns)
    with saved_figure(path, max(5.0, columns * 2.6), rows * 2.5 + 0.9) as figure:
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axes, result, title in zip(panels, results, titles or [one["task"] for one in results], strict=False):
            kinds = [kind["kind"] for kind in result["levels"][0]]
            for name, style in STYLES.items():
                points = [level[kinds.index(name)] for level in result["levels"]]
                x, y = [p["density"] for p in points], [p["attention_mass"] for p in points]
                axes.plot(x, y, marker="o", markersize=3.5, label=name, **style)
            axes.set(title=title, xscale="log", ylim=(0, 1.02))
            shown = [share for share in SHARES if axes.get_xlim()[0] <= share <= axes.get_xlim()[1]]
            axes.set_xticks(shown, [f"{100 * share:.0f} %" for share in shown])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
            axes.grid(axis="y")
        for axes in panels[len(results) :]:
            axes.remove()
        figure.supxlabel("share of pairs that are edges", fontsize=9.5)
        figure.supylabel("attention along them", fontsize=9.5)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8.5)
