"""Where on an image a model looks."""

from math import isqrt

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.plots.style import MASK_COLOURS, QUIET


def as_image(values: Tensor) -> NDArray[np.float64]:
    """Numbers of pixels, row by row, as a square ``(side, side)``.

    Raises:
        SbmtError: If they are not the pixels of a square.
    """
    side = isqrt(values.numel())
    if values.dim() != 1 or side * side != values.numel():
        raise SbmtError("the pixels of a square image", tuple(values.shape), "give side² numbers")
    return values.double().numpy().reshape(side, side)


def plot_input_image(axes: Axes, tokens: Tensor, first_id: int) -> None:
    """The image that a model reads: a token id above ``first_id`` is a grey level."""
    _frame(axes)
    axes.imshow(as_image((tokens - first_id).clamp(min=0)), cmap="gray", vmin=0, vmax=255, interpolation="nearest")


def plot_in_degrees(axes: Axes, in_degrees: Tensor, upper: float) -> None:
    """How often each pixel is attended: the share of queries that attend it, white for none.

    Args:
        axes: Where to draw; ``axes.images[0]`` holds the map.
        in_degrees: ``(n,)`` in [0, 1].
        upper: The share drawn darkest.

    Paper: Figures 7 and 8.
    """
    _frame(axes)
    image = axes.imshow(as_image(in_degrees), cmap=MASK_COLOURS, vmin=0, vmax=upper, interpolation="nearest")
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, ticks=MaxNLocator(4))
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7.5)


def _frame(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=QUIET, linewidth=0.7)
