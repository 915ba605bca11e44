"""Does an example's density go with how difficult it is? Rank correlations."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from sbmt.experiments.plots.style import BLUE

ALL_HEADS = "mean of all heads"


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation between a density and a measure of difficulty.

    Attributes:
        measure: Name of the measure.
        part: Whose density: :data:`ALL_HEADS`, or one head's.
        rho: In [-1, 1]; None where the density is the same for every example, which leaves nothing to rank.
        p_value: Of the test against independence, for this one row; None where ``rho`` is.
        n: Number of examples.
    """

    measure: str
    part: str
    rho: float | None
    p_value: float | None
    n: int


def difficulty_measures(extras: dict[str, NDArray[Any]], lengths: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Numbers per example that may say how difficult it is: extras with more than two values, then the length.

    Fingerprints, which are unsigned 64-bit numbers, are no measure of anything; what takes two values at most cannot
    be ranked well.

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
    """Correlates the density of all heads together, and of each by itself, with every measure.

    Examples of which a measure is not finite are left out of its rows.

    Args:
        densities: Density of every example in each head.
        measures: See :func:`difficulty_measures`.

    Returns:
        Rows by measure, the mean of all heads first.
    """
    from scipy.stats import spearmanr

    n_layers, n_heads = densities.shape[1:]
    parts = {ALL_HEADS: densities.double().mean((1, 2)).numpy()}
    parts |= {
        f"layer {layer}, head {head}": densities[:, layer, head].double().numpy()
        for layer in range(n_layers)
        for head in range(n_heads)
    }
    rows = []
    for name, measure in measures.items():
        is_known = np.isfinite(measure)
        n = int(is_known.sum())
        for part, density in parts.items():
            if np.ptp(density[is_known]) == 0:
                rows.append(RankCorrelation(name, part, None, None, n))
                continue
            rho, p_value = spearmanr(density[is_known], measure[is_known])
            rows.append(RankCorrelation(name, part, float(rho), float(p_value), n))
    return rows


def plot_density_over(axes: Axes, densities: NDArray[np.float64], measure: NDArray[np.float64], name: str) -> None:
    """One dot per example: its density over what is known of its difficulty."""
    axes.plot(measure, densities, ".", color=BLUE, markersize=5, alpha=0.6, markeredgewidth=0)
    axes.set(xlabel=name, title="One dot per input", ylim=(0, 1.12 * float(densities.max()) or 1.0))
