"""Masks as pictures: tables with a row per query and a column per key, and bipartite graphs."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.plots.style import BLUE, FAINT, INK, MASK_COLOURS, QUIET, SCORE_COLOURS, is_dark
from sbmt.graph.edges import EdgeList

PairTable: TypeAlias = Tensor | np.ndarray | EdgeList
"""Something with one entry per query-key pair; leading dimensions of size 1 are dropped."""

_MOST_TICKS, _MOST_LABELS = 12, 20  # more numbers than this overlap along a heatmap, and along a column of nodes


def plot_mask(
    mask: PairTable,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    lower: float = 0.0,
    upper: float = 1.0,
    show_values: bool = False,
    decimals: int = 2,
    show_colorbar: bool = False,
    blocks: Sequence[int] = (),
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    cmap: Colormap = MASK_COLOURS,
) -> Axes:
    """Heatmap of a boolean mask or of edge probabilities: a row for each query, a column for each key.

    Args:
        mask: ``(n_queries, n_keys)``, or an :class:`~sbmt.graph.edges.EdgeList` of one graph.
        ax: Where to draw; None makes a new figure.
        title: Title above the heatmap.
        lower: The number drawn lightest.
        upper: The number drawn darkest. Leave it at 1 for pictures that are to be compared.
        show_values: Whether to print each entry in its cell.
        decimals: Decimals of the printed entries.
        show_colorbar: Whether to add the scale beside the heatmap.
        blocks: Sizes of consecutive groups of tokens, separated by thin lines on both axes.
        query_labels: One label per row.
        key_labels: One label per column.
        cmap: Colours from ``lower`` to ``upper``.

    Returns:
        The axes; ``ax.images[0]`` holds the mask as floats.
    """
    table = _as_table(mask)
    ax = _axes_or_new(ax, figsize=(3.6, 3.4))
    image = ax.imshow(table, cmap=cmap, vmin=lower, vmax=upper, interpolation="nearest")
    ax.set(xlabel="key", ylabel="query")
    if title is not None:
        ax.set_title(title)
    for axis, labels, n in ((ax.xaxis, key_labels, table.shape[1]), (ax.yaxis, query_labels, table.shape[0])):
        if labels is not None:
            axis.set_ticks(range(n), _checked(labels, n))
            if axis is ax.xaxis and max(map(len, labels)) > 3:
                for label in axis.get_ticklabels():
                    label.set(rotation=45, ha="right", va="top", rotation_mode="anchor")
        elif n <= _MOST_TICKS:
            axis.set_ticks(range(n))
        else:
            axis.set_major_locator(MaxNLocator(5, integer=True))
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color=QUIET, linewidth=0.7)
    for place in np.cumsum(blocks)[:-1] - 0.5:
        ax.axhline(place, color=QUIET, linewidth=0.6)
        ax.axvline(place, color=QUIET, linewidth=0.6)
    if show_values:
        has_fractions = not np.isin(np.ma.compressed(table), (0.0, 1.0)).all()
        colours = np.asarray(cmap(image.norm(table)))
        for (i, j), value in np.ma.ndenumerate(table):
            text = f"{value:.{decimals if has_fractions else 0}f}".replace("-0.0", "0.0")
            ax.text(j, i, text, ha="center", va="center", color="white" if is_dark(colours[i, j]) else INK, size=8)
    if show_colorbar:
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
    return ax


def plot_scores(
    scores: PairTable, mask: PairTable | None = None, ax: Axes | None = None, *, decimals: int = 1, **options: Any
) -> Axes:
    """Heatmap of signed numbers per pair: negative vermillion, zero white, positive blue, grey outside the mask.

    Further ``options`` are those of :func:`plot_mask`. In ``ax.images[0]``, scores outside the mask are masked out.
    """
    table = _as_table(scores)
    if mask is not None:
        is_edge = _as_table(mask).astype(bool)
        if is_edge.shape != table.shape:
            raise SbmtError(f"a mask of shape {table.shape}", is_edge.shape, "give one entry per score")
        table = np.ma.masked_array(table, ~is_edge)
    largest = (float(np.abs(table).max()) if np.ma.count(table) else 1.0) or 1.0
    ax = plot_mask(table, ax, cmap=SCORE_COLOURS, lower=-largest, upper=largest, decimals=decimals, **options)
    ax.set_facecolor(FAINT)
    return ax


def plot_bipartite(
    edges: PairTable,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    weights: Tensor | np.ndarray | None = None,
    query: int | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Axes:
    """The graph of a mask: queries on the left, keys on the right, a line for each edge.

    Queries are in the order of a heatmap's rows, so that the two pictures can be read side by side.

    Args:
        edges: Boolean ``(n_queries, n_keys)`` or an :class:`~sbmt.graph.edges.EdgeList` of one graph.
        ax: Where to draw; None makes a new figure.
        title: Title above the graph.
        weights: One number ≥ 0 per edge in EdgeList order (row by row), drawn as the width of its line.
        query: Draws the edges of this query in colour and all others faintly.
        query_labels: One label per query; without, up to 20 are numbered.
        key_labels: The same for keys.

    Returns:
        The axes; ``ax.collections[0]`` holds one segment per edge, in EdgeList order.
    """
    mask = _as_table(edges).astype(bool)
    source, target = np.nonzero(mask)  # query, key: ascending by query, then key
    heights = [1 - (np.arange(n) + 0.5) / n for n in mask.shape]
    ends = [np.stack([np.full(source.size, x), heights[x][end]], 1) for x, end in ((0, source), (1, target))]
    segments = np.stack(ends, axis=1)  # edges 2 2
    widths = np.full(source.size, 1.3)
    if weights is not None:
        given = _to_numpy(weights).astype(float).reshape(-1)
        if given.size != source.size:
            raise SbmtError(f"{source.size} weights, one per edge", given.size, "list them row by row")
        widths = 0.3 + 4.5 * given / max(given.max(initial=0.0), 1e-12)
    ax = _axes_or_new(ax, figsize=(3.4, 3.4))
    background = BLUE if query is None else FAINT
    ax.add_collection(LineCollection(list(segments), colors=background, linewidths=widths, zorder=1))
    if query is not None:
        shown = source == query
        ax.add_collection(LineCollection(list(segments[shown]), colors=BLUE, linewidths=widths[shown], zorder=2))
    for x, labels, name, align in ((0, query_labels, "queries", "right"), (1, key_labels, "keys", "left")):
        n = mask.shape[x]
        ax.plot(np.full(n, x), heights[x], "os"[x], color=INK, markersize=5.5, zorder=3, clip_on=False)
        ax.text(x, -0.04, name, ha="center", va="top")
        numbers = [str(i) if n <= _MOST_LABELS else "" for i in range(n)]
        for place, label in zip(heights[x], _checked(labels or numbers, n), strict=True):
            ax.text(x + (0.07 if x else -0.07), place, label, ha=align, va="center")
    ax.set(xlim=(-0.28, 1.28), ylim=(0, 1))
    ax.set_box_aspect(1)  # like a heatmap of a square mask, so that its rows and the nodes are level
    ax.axis("off")
    if title is not None:
        ax.set_title(title)
    return ax


def _checked(labels: Sequence[str], n: int) -> Sequence[str]:
    if len(labels) != n:
        raise SbmtError(f"{n} labels, one per token", len(labels), "give as many as the mask has rows or columns")
    return labels


def _as_table(mask: PairTable) -> np.ndarray:
    """One mask as a float array ``(n_queries, n_keys)``."""
    array = _to_numpy(mask.to_dense() if isinstance(mask, EdgeList) else mask)
    shape = array.shape
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 2 or 0 in array.shape:
        raise SbmtError("one mask (n_queries, n_keys)", shape, "pick an example and a head: mask[0, 0]")
    return array.astype(float)


def _to_numpy(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asanyarray(values)


def _axes_or_new(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # only here: importing this module picks no backend

    return plt.subplots(figsize=figsize)[1]
