"""The bipartite graph that a mask stands for."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.plots.masks import MOST_LABELS, PairTable, as_table, axes_or_new, check_labels, to_numpy
from sbmt.experiments.plots.style import BLUE, FAINT, INK


def plot_bipartite(
    edges: PairTable,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    weights: Tensor | np.ndarray | None = None,
    query: int | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    color: str = BLUE,
) -> Axes:
    """The graph of a mask: queries on the left, keys on the right, a line for each edge.

    Queries are in the order of a heatmap's rows, so that the two pictures can be read side by side.

    Args:
        edges: Boolean ``(n_queries, n_keys)`` or an :class:`~sbmt.graph.edges.EdgeList` of one graph.
        ax: Where to draw; None makes a new figure.
        title: Title above the graph.
        weights: One number ≥ 0 per edge in EdgeList order (row by row), drawn as the width of its line.
        query: Draws the edges of this query in colour and all others faintly.
        query_labels: One label per query; None numbers them where they fit.
        key_labels: One label per key; None numbers them where they fit.
        color: Colour of the edges.

    Returns:
        The axes; ``ax.collections[0]`` holds one segment per edge, in EdgeList order.

    Raises:
        SbmtError: If ``edges`` is not one mask, or weights or labels do not fit.
    """
    mask = as_table(edges).astype(bool)
    n_queries, n_keys = mask.shape
    source, target = np.nonzero(mask)  # query, key: ascending by query, then key
    heights = [np.linspace(1 - 0.5 / n, 0.5 / n, n) for n in (n_queries, n_keys)]
    ends = [np.stack([np.full(source.size, x), heights[x][end]], 1) for x, end in ((0, source), (1, target))]
    segments = np.stack(ends, axis=1)  # edges 2 2
    widths = np.full(source.size, 1.3 if source.size <= 150 else 0.6)
    if weights is not None:
        given = to_numpy(weights).astype(float).reshape(-1)
        if given.size != source.size:
            raise SbmtError(f"{source.size} weights, one per edge", given.size, "list them row by row")
        widths = 0.3 + 4.5 * given / max(given.max(initial=0.0), 1e-12)
    ax = axes_or_new(ax, figsize=(3.4, 3.4))
    background = color if query is None else FAINT
    ax.add_collection(LineCollection(list(segments), colors=background, linewidths=widths, zorder=1))
    if query is not None:
        shown = source == query
        ax.add_collection(LineCollection(list(segments[shown]), colors=color, linewidths=widths[shown], zorder=2))
    _draw_side(ax, 0.0, heights[0], query_labels, "queries", "right", "o")
    _draw_side(ax, 1.0, heights[1], key_labels, "keys", "left", "s")
    ax.set(xlim=(-0.28, 1.28), ylim=(0, 1))
    ax.set_box_aspect(1)  # like a heatmap of a square mask, so that its rows and the nodes are level
    ax.axis("off")
    if title is not None:
        ax.set_title(title)
    return ax


def _draw_side(
    ax: Axes, x: float, heights: np.ndarray, labels: Sequence[str] | None, name: str, align: str, marker: str
) -> None:
    n = heights.size
    size = 5.5 if n <= MOST_LABELS else 2.5
    ax.plot(np.full(n, x), heights, marker, color=INK, markersize=size, zorder=3, clip_on=False)
    ax.text(x, -0.04, name, ha="center", va="top")
    if labels is not None:
        check_labels(labels, n)
    elif n <= MOST_LABELS:
        labels = [str(i) for i in range(n)]
    for place, label in zip(heights, labels or (), strict=bool(labels)):
        ax.text(x + (-0.07 if x == 0 else 0.07), place, label, ha=align, va="center")
