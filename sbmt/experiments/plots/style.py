"""One look for every figure."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import rc_params_from_file
from matplotlib.colors import LinearSegmentedColormap

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
INK = "#26323A"
QUIET = "#6B7780"
FAINT = "#D5DCE1"

PALETTE = (BLUE, ORANGE, GREEN, VERMILLION, PURPLE, SKY)
"""Okabe and Ito's colours, which most kinds of colour blindness keep apart."""

ROLES = {
    "query": VERMILLION,
    "key": GREEN,
    "sampled": SKY,
    "certain": ORANGE,
    "expected": PURPLE,
    "full attention": BLUE,
}
"""The colour of what a picture shows: a query that is followed, keys, edges that were drawn, those that a window or a
self-loop makes certain, expectations, and full attention."""

MASK_COLOURS = LinearSegmentedColormap.from_list("sbmt_mask", ["#FFFFFF", SKY, BLUE, "#003E63"])
"""Probability 0 is white, 1 is the darkest blue; lightness falls steadily, so the scale survives printing in grey."""

SCORE_COLOURS = LinearSegmentedColormap.from_list("sbmt_score", [VERMILLION, "#FFFFFF", BLUE])
"""For signed numbers: negative vermillion, zero white, positive blue."""

STYLE = rc_params_from_file(Path(__file__).with_name("sbmt.mplstyle"), use_default_template=False)


def use_style() -> AbstractContextManager[object]:
    """Gives figures the house style, from this call on or for the length of a ``with`` block.

    The background is white and the text dark on every page, so figures read the same in light and dark mode.
    """
    replaced = {name: matplotlib.rcParams[name] for name in STYLE}
    matplotlib.rcParams.update(STYLE)
    stack = ExitStack()
    stack.callback(matplotlib.rcParams.update, replaced)
    return stack


def is_dark(colour: Sequence[float] | np.ndarray) -> bool:
    """Whether writing on this colour (red, green and blue in [0, 1]) should be white."""
    red, green, blue, *_ = colour
    return bool(0.299 * red + 0.587 * green + 0.114 * blue < 0.55)
