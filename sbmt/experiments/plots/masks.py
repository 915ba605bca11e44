"""Draws masks as heatmaps, with a row per query and a column per key, or as bipartite graphs."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.plots.style import BLUE, FAINT, INK, MASK_COLOURS, QUIET, SCORE_COLOURS
from sbmt.graph.edges import EdgeList

PairTable: TypeAlias = Tensor | np.ndarray | EdgeList
"""One entry per query-key pair; leading dimensions of size 1 are dropped."""


def plot_mask(
    mask: PairTable,
    ax: Axes | None = None,
    *,
    title: str = "",
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
    """Draws a heatmap of a boolean mask or of edge probabilities, with a row per query and a column per key.

    Thin lines separate consecutive groups of tokens, whose sizes are ``blocks``. ``ax.images[0]`` holds the mask.
    """
    table = _as_table(mask)
    ax = ax or plt.subplots(figsize=(3.6, 3.4))[1]
    image = ax.imshow(table, cmap=cmap, vmin=lower, vmax=upper, interpolation="nearest")
    ax.set(xlabel="key", ylabel="query", title=title)
    for axis, labels, n in ((ax.xaxis, key_labels, table.shape[1]), (ax.yaxis, query_labels, table.shape[0])):
        if labels is not None:
            axis.set_ticks(range(n), _checked(labels, n))
            if axis is ax.xaxis and max(map(len, labels)) > 3:
                for label in axis.get_ticklabels():
                    label.set(rotation=45, ha="right", va="top", rotation_mode="anchor")
        elif n <= 12:  # more labels would overlap
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
        is_dark = np.asarray(cmap(image.norm(table)))[..., :3] @ (0.299, 0.587, 0.114) < 0.55
        for (i, j), value in np.ma.ndenumerate(table):
            text = f"{value:.{decimals if has_fractions else 0}f}".replace("-0.0", "0.0")
            ax.text(j, i, text, ha="center", va="center", color="white" if is_dark[i, j] else INK, size=8)
    if show_colorbar:
        add_colorbar(image)
    return ax


def plot_scores(
    scores: PairTable, mask: PairTable | None = None, ax: Axes | None = None, *, decimals: int = 1, **options: Any
) -> Axes:
    """Draws a heatmap of signed numbers, grey outside the mask; ``options`` are passed to :func:`plot_mask`."""
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
    title: str = "",
    weights: Tensor | None = None,
    query: int | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Axes:
    """Draws the graph of a mask, with queries on the left and keys on the right, both from top to bottom.

    The ``weights`` of the edges, in row order, determine line widths. If a ``query`` is given, only its edges are blue.
    """
    mask = _as_table(edges).astype(bool)
    source, target = np.nonzero(mask)  # query, key: ascending by query, then key
    if weights is not None and weights.numel() != source.size:
        raise SbmtError(f"{source.size} weights, one per edge", weights.numel(), "list them in row order")
    widths = np.full(source.size, 1.3)
    if weights is not None:
        widths = 0.3 + 4.5 * (weights.flatten() / weights.max().clamp(min=1e-12)).numpy()
    heights = [1 - (np.arange(n) + 0.5) / n for n in mask.shape]
    ends = [np.stack([np.full(source.size, x), heights[x][end]], 1) for x, end in ((0, source), (1, target))]
    segments: Any = np.stack(ends, axis=1)  # edges 2 2
    ax = ax or plt.subplots(figsize=(3.4, 3.4))[1]
    ax.add_collection(LineCollection(segments, colors=BLUE if query is None else FAINT, linewidths=widths, zorder=1))
    if query is not None:
        ours = source == query
        ax.add_collection(LineCollection(segments[ours], colors=BLUE, linewidths=widths[ours], zorder=2))
    for x, labels, name, align in ((0, query_labels, "queries", "right"), (1, key_labels, "keys", "left")):
        n = mask.shape[x]
        ax.plot(np.full(n, x), heights[x], "os"[x], color=INK, markersize=5.5, zorder=3, clip_on=False)
        ax.text(x, -0.04, name, ha="center", va="top")
        for place, label in zip(heights[x], _checked(labels or [str(i) for i in range(n)], n), strict=True):
            ax.text(x + (0.07 if x else -0.07), place, label, ha=align, va="center")
    ax.set(xlim=(-0.28, 1.28), ylim=(0, 1), title=title, box_aspect=1)  # aligns nodes with rows of a square heatmap
    ax.axis("off")
    return ax


def add_colorbar(image: AxesImage, **options: Any) -> Colorbar:
    """Adds a colour scale beside a heatmap."""
    bar = image.axes.figure.colorbar(image, ax=image.axes, fraction=0.046, pad=0.03, **options)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    return bar


def _checked(labels: Sequence[str], n: int) -> Sequence[str]:
    if len(labels) != n:
        raise SbmtError(f"{n} labels, one per token", len(labels), "give one label for each row or column of the mask")
    return labels


def _as_table(mask: PairTable) -> np.ndarray:
    """Converts one mask to a float array ``(n_queries, n_keys)``."""
    given = mask.to_dense() if isinstance(mask, EdgeList) else mask
    table = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asanyarray(given)
    while table.ndim > 2 and len(table) == 1:
        table = table[0]
    if table.ndim != 2 or 0 in table.shape:
        raise SbmtError("one mask (n_queries, n_keys)", tuple(table.shape), "select an example and a head: mask[0, 0]")
    return table.astype(float)
