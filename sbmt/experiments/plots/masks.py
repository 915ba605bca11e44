"""Masks as pictures: a table with a row per query and a column per key."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.plots.style import FAINT, INK, MASK_COLOURS, QUIET, SCORE_COLOURS
from sbmt.graph.edges import EdgeList

PairTable: TypeAlias = Tensor | np.ndarray | EdgeList
"""Something with one entry per query-key pair; leading dimensions of size 1 are dropped."""

_MOST_TICKS = 12  # more numbers than this run into each other along a heatmap
MOST_LABELS = 20  # and along a column of nodes


def plot_mask(
    mask: PairTable,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    upper: float = 1.0,
    show_values: bool = False,
    show_colorbar: bool = False,
    blocks: Sequence[int] | None = None,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
    cmap: Colormap = MASK_COLOURS,
) -> Axes:
    """Heatmap of a boolean mask or of edge probabilities: a row for each query, a column for each key.

    Args:
        mask: ``(n_queries, n_keys)``, boolean or in [0, ``upper``]; leading dimensions of size 1 are dropped. Also an
            :class:`~sbmt.graph.edges.EdgeList` of one graph.
        ax: Where to draw; None makes a new figure.
        title: Title above the heatmap.
        upper: The number drawn darkest. Leave it at 1 where pictures are to be compared.
        show_values: Whether to print each entry in its cell, with two decimals.
        show_colorbar: Whether to add the scale beside the heatmap.
        blocks: Sizes of consecutive groups of tokens, to be set apart by thin lines on both axes.
        query_labels: One label per row.
        key_labels: One label per column.
        cmap: Colours from 0 to ``upper``.

    Returns:
        The axes; ``ax.images[0]`` holds the mask as float numbers.

    Raises:
        SbmtError: If ``mask`` does not come down to two dimensions, or labels do not fit.
    """
    table = as_table(mask)
    return _heatmap(
        table,
        ax,
        limits=(0.0, upper),
        cmap=cmap,
        title=title,
        show_values=show_values,
        show_colorbar=show_colorbar,
        blocks=blocks,
        query_labels=query_labels,
        key_labels=key_labels,
    )


def plot_scores(
    scores: PairTable,
    mask: PairTable | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    show_values: bool = False,
    show_colorbar: bool = False,
    query_labels: Sequence[str] | None = None,
    key_labels: Sequence[str] | None = None,
) -> Axes:
    """Heatmap of signed numbers per pair: negative vermillion, zero white, positive blue.

    Args:
        scores: ``(n_queries, n_keys)``.
        mask: Boolean, same shape: pairs outside it are greyed out. None shows all.
        ax: Where to draw; None makes a new figure.
        title: Title above the heatmap.
        show_values: Whether to print each entry in its cell, with one decimal.
        show_colorbar: Whether to add the scale.
        query_labels: One label per row.
        key_labels: One label per column.

    Returns:
        The axes; ``ax.images[0]`` holds the scores, those outside the mask masked out.

    Raises:
        SbmtError: If shapes or labels do not fit.
    """
    table = as_table(scores)
    if mask is not None:
        is_edge = as_table(mask).astype(bool)
        if is_edge.shape != table.shape:
            raise SbmtError(f"a mask of shape {table.shape}", is_edge.shape, "give one entry per score")
        table = np.ma.masked_array(table, ~is_edge)
    largest = float(np.abs(table).max()) if np.ma.count(table) else 1.0
    ax = _heatmap(
        table,
        ax,
        limits=(-largest or -1.0, largest or 1.0),
        cmap=SCORE_COLOURS,
        title=title,
        show_values=show_values,
        show_colorbar=show_colorbar,
        blocks=None,
        query_labels=query_labels,
        key_labels=key_labels,
        decimals=1,
    )
    ax.set_facecolor(FAINT)
    return ax


def _heatmap(
    table: np.ndarray,
    ax: Axes | None,
    *,
    limits: tuple[float, float],
    cmap: Colormap,
    title: str | None,
    show_values: bool,
    show_colorbar: bool,
    blocks: Sequence[int] | None,
    query_labels: Sequence[str] | None,
    key_labels: Sequence[str] | None,
    decimals: int = 2,
) -> Axes:
    ax = axes_or_new(ax, figsize=(3.6, 3.4))
    image = ax.imshow(table, cmap=cmap, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    ax.set(xlabel="key", ylabel="query")
    for axis, labels, n in ((ax.xaxis, key_labels, table.shape[1]), (ax.yaxis, query_labels, table.shape[0])):
        if labels is not None:
            check_labels(labels, n)
            axis.set_ticks(range(n), labels)
            if axis is ax.xaxis and max(map(len, labels)) > 3:
                for label in axis.get_ticklabels():
                    label.set(rotation=45, ha="right", va="top", rotation_mode="anchor")
        elif n <= _MOST_TICKS:
            axis.set_ticks(range(n))
        else:
            axis.set_major_locator(MaxNLocator(5, integer=True))
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color=QUIET, linewidth=0.7)
    if blocks is not None:
        for place in np.cumsum(blocks)[:-1] - 0.5:
            ax.axhline(place, color=QUIET, linewidth=0.6)
            ax.axvline(place, color=QUIET, linewidth=0.6)
    if show_values:
        _write_values(ax, table, limits, cmap, decimals)
    if show_colorbar:
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
    if title is not None:
        ax.set_title(title)
    return ax


def _write_values(ax: Axes, table: np.ndarray, limits: tuple[float, float], cmap: Colormap, decimals: int) -> None:
    is_bool_like = bool(np.isin(np.ma.filled(table, 0.0), (0.0, 1.0)).all())
    for (i, j), value in np.ndenumerate(table):
        if np.ma.is_masked(table) and np.ma.getmaskarray(table)[i, j]:
            continue
        red, green, blue, _ = cmap((value - limits[0]) / (limits[1] - limits[0]))
        is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
        text = f"{value:.0f}" if is_bool_like else f"{value:.{decimals}f}"
        ax.text(j, i, text.replace("-0.0", "0.0"), ha="center", va="center", color="white" if is_dark else INK, size=8)


def check_labels(labels: Sequence[str], n: int) -> None:
    """Raises SbmtError unless there is one label per token."""
    if len(labels) != n:
        raise SbmtError(f"{n} labels, one per token", len(labels), "give as many as the mask has rows or columns")


def as_table(mask: PairTable) -> np.ndarray:
    """One mask as a float array ``(n_queries, n_keys)``; raises SbmtError where it has more dimensions."""
    array = to_numpy(mask.to_dense() if isinstance(mask, EdgeList) else mask)
    shape = array.shape
    while array.ndim > 2 and array.shape[0] == 1:
        array = array[0]
    if array.ndim != 2 or 0 in array.shape:
        raise SbmtError("one mask (n_queries, n_keys)", shape, "pick an example and a head: mask[0, 0]")
    return array.astype(float)


def to_numpy(values: Any) -> np.ndarray:
    """Numbers as an array, from a tensor or anything array-like."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def axes_or_new(ax: Axes | None, figsize: tuple[float, float]) -> Axes:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # only here: importing this module picks no backend

    return plt.subplots(figsize=figsize)[1]
