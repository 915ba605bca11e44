"""How dense each layer and head is, and how much that differs from input to input."""

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from sbmt.experiments.plots.style import BLUE, INK, SKY

_GAP = 0.8  # between two layers, in bars


def density_moments(
    densities: Float[Tensor, "n layers heads"],
) -> tuple[Float[Tensor, "layers columns"], Float[Tensor, "layers columns"]]:
    """Mean and standard deviation over examples: of each layer in column 0, of its heads in those after it.

    A layer's deviation is that of its heads' mean. Deviations divide by n − 1.

    Example:
        >>> mean, deviation = density_moments(torch.tensor([[[0.1, 0.3]], [[0.3, 0.5]]]))
        >>> mean.round(decimals=3).tolist(), deviation.round(decimals=3).tolist()
        ([[0.3, 0.2, 0.4]], [[0.141, 0.141, 0.141]])
    """
    columns = torch.cat([densities.mean(2, keepdim=True), densities], 2).double()  # n layers 1+heads
    return columns.mean(0), columns.std(0)


def plot_density_bars(axes: Axes, densities: Float[Tensor, "n layers heads"]) -> None:
    """One dark bar per layer, a light one per head where there are several, with deviations over inputs.

    Args:
        axes: Where to draw.
        densities: Density of every example in each head.

    Paper: Figure 5.
    """
    mean, deviation = (x.numpy() for x in density_moments(densities))
    n_layers, n_columns = mean.shape
    if n_columns == 2:  # a layer's only head is the layer
        mean, deviation, n_columns = mean[:, :1], deviation[:, :1], 1
    ticks, labels = [], []
    for layer in range(n_layers):
        places = layer * (n_columns + _GAP) + torch.arange(n_columns).double().numpy()
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
