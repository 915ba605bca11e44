"""Densities of single examples: per layer and head, over an image, and against how difficult the example is."""

from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from sbmt.experiments.plots.style import BLUE, INK, MASK_COLOURS, QUIET, SKY

ALL_HEADS = "mean of all heads"
LEAST_TESTED = 20
"""Examples below which a correlation has no p-value, since the test holds for many of them."""
_GAP = 0.8  # between the bars of two layers, in bars


def density_moments(
    densities: Float[Tensor, "n layers heads"],
) -> tuple[Float[Tensor, "layers columns"], Float[Tensor, "layers columns"]]:
    """Mean and standard deviation over examples: of each layer in column 0, of its heads in the columns after it.

    A layer's deviation is that of the mean over its heads. Deviations divide by n − 1.

    Example:
        >>> mean, deviation = density_moments(torch.tensor([[[0.1, 0.3]], [[0.3, 0.5]]]))
        >>> mean.round(decimals=3).tolist(), deviation.round(decimals=3).tolist()
        ([[0.3, 0.2, 0.4]], [[0.141, 0.141, 0.141]])
    """
    columns = torch.cat([densities.mean(2, keepdim=True), densities], 2).double()  # n layers 1+heads
    return columns.mean(0), columns.std(0)


def plot_density_bars(axes: Axes, densities: Float[Tensor, "n layers heads"]) -> None:
    """A dark bar for each layer, a light one for each head if there are several, with deviations over inputs.

    Paper: Figure 5.
    """
    mean, deviation = (x.numpy() for x in density_moments(densities))
    n_layers, n_columns = mean.shape
    if n_columns == 2:  # a layer's only head is the layer
        mean, deviation, n_columns = mean[:, :1], deviation[:, :1], 1
    ticks, labels = [], []
    for layer in range(n_layers):
        places = layer * (n_columns + _GAP) + np.arange(n_columns)
        axes.bar(places, mean[layer], 0.86, color=[BLUE] + [SKY] * (n_columns - 1))
        axes.errorbar(places, mean[layer], deviation[layer], fmt="none", ecolor=INK, elinewidth=1.2, capsize=3)
        ticks += places.tolist()
        labels += [f"layer {layer}"] + [f"head {head}" for head in range(n_columns - 1)]
    axes.set_xticks(ticks, labels, rotation=0 if len(ticks) <= 12 else 90)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="y")
    top = float((mean + deviation).max())
    axes.set(ylim=(0, min(1.05, 1.12 * top) or 1.0), ylabel="density")
    axes.set_title(f"Mean density, and standard deviation\nover {len(densities):,} test inputs")


def plot_input_image(axes: Axes, tokens: Tensor, first_id: int) -> None:
    """The square image that a model reads: a token id above ``first_id`` is a grey level."""
    _plot_pixels(axes, (tokens - first_id).clamp(min=0), cmap="gray", vmax=255)


def plot_in_degrees(axes: Axes, in_degrees: Tensor, upper: float) -> None:
    """How often each pixel of a square is attended: the share of queries that attend it, white for none.

    Paper: Figures 7 and 8.
    """
    image = _plot_pixels(axes, in_degrees, cmap=MASK_COLOURS, vmax=upper)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, ticks=MaxNLocator(4))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7.5)


def _plot_pixels(axes: Axes, values: Tensor, **look: Any) -> Any:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=QUIET, linewidth=0.7)
    image = values.double().numpy().reshape(isqrt(len(values)), -1)
    return axes.imshow(image, vmin=0, interpolation="nearest", **look)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation between a density and a measure of difficulty.

    Attributes:
        measure: Name of the measure.
        part: Whose density: :data:`ALL_HEADS`, or one head's.
        rho: In [-1, 1]; None if every example has the same density, which leaves nothing to rank.
        p_value: Of the test against independence, for this row alone; None where ``rho`` is, and for fewer than
            :data:`LEAST_TESTED` examples.
        n: Number of examples.
    """

    measure: str
    part: str
    rho: float | None
    p_value: float | None
    n: int


def difficulty_measures(extras: dict[str, NDArray[Any]], lengths: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Numbers per example that may say how difficult it is: extras with more than two values, then the length.

    Fingerprints, which are unsigned 64-bit numbers, measure nothing; what takes at most two values cannot be ranked
    well.

    Example:
        >>> extras = {"turns": np.array([1, 2, 3]), "side": np.array([0, 1, 1])}
        >>> list(difficulty_measures(extras, lengths=np.array([5, 7, 9])))
        ['turns', 'length']
    """
    found = {}
    for name, values in (dict(sorted(extras.items())) | {"length": lengths}).items():
        is_number = values.ndim == 1 and values.dtype.kind in "iuf" and values.dtype != np.uint64
        if is_number and len(np.unique(values[np.isfinite(values)])) > 2:
            found[name] = values.astype(np.float64)
    return found


def rank_correlations(
    densities: Float[Tensor, "n layers heads"], measures: dict[str, NDArray[np.float64]]
) -> list[RankCorrelation]:
    """Correlates the mean density of all heads, and that of each head, with every measure.

    Examples whose measure is not finite are left out of its rows. Rows are by measure, the mean of all heads first.
    """
    from scipy.stats import spearmanr

    parts = {ALL_HEADS: densities.double().mean((1, 2)).numpy()}
    for layer, head in np.ndindex(densities.shape[1:]):
        parts[f"layer {layer}, head {head}"] = densities[:, layer, head].double().numpy()
    rows = []
    for name, measure in measures.items():
        is_known = np.isfinite(measure)
        for part, density in parts.items():
            rho, p_value, n = None, None, int(is_known.sum())
            if np.ptp(density[is_known]) > 0:
                rho, p = map(float, spearmanr(density[is_known], measure[is_known]))
                p_value = p if n >= LEAST_TESTED else None
            rows.append(RankCorrelation(name, part, rho, p_value, n))
    return rows


def plot_density_over(axes: Axes, densities: NDArray[np.float64], measure: NDArray[np.float64], name: str) -> None:
    """One dot per example: its density over a measure of its difficulty."""
    axes.plot(measure, densities, ".", color=BLUE, markersize=5, alpha=0.6, markeredgewidth=0)
    axes.set(xlabel=name, title="One dot per input", ylim=(0, 1.12 * float(densities.max()) or 1.0))
