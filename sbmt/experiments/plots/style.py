"""The common style of all figures, and a function that saves figures in this style."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import rc_params_from_file
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.experiments.files import write_bytes

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
"""Okabe and Ito's colours, which remain distinguishable with most kinds of colour blindness."""

ROLES = {
    "query": VERMILLION,
    "key": GREEN,
    "sampled": SKY,
    "certain": ORANGE,
    "expected": PURPLE,
    "full attention": BLUE,
}
"""Colours by role. Edges are either sampled or made certain by a window or a self-loop."""

MASK_COLOURS = LinearSegmentedColormap.from_list("sbmt_mask", ["#FFFFFF", SKY, BLUE, "#003E63"])
"""Colours from white at 0 to dark blue at 1. Lightness decreases steadily, so the scale can be printed in grey."""

SCORE_COLOURS = LinearSegmentedColormap.from_list("sbmt_score", [VERMILLION, "#FFFFFF", BLUE])
"""Colours for signed numbers: negative is vermillion, zero is white and positive is blue."""

NOT_IN_XML = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|\xef\xbf[\xbe\xbf]")
"""Characters not allowed in XML, which matplotlib copies from labels into the comments of SVG files."""

STYLE = rc_params_from_file(Path(__file__).with_name("sbmt.mplstyle"), use_default_template=False)


def use_style() -> None:
    """Applies the house style to all later figures."""
    matplotlib.rcParams.update(STYLE)


@contextmanager
def saved_figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """Yields a figure of the given size in inches, and writes it to ``path`` atomically at the end of the block."""
    kind = figure_format(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        buffer = io.BytesIO()
        # Leaving out matplotlib's version makes the bytes of a figure reproducible.
        options: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
        figure.savefig(buffer, format=kind, **options if kind == "png" else {})
        content = buffer.getvalue()
        write_bytes(path, NOT_IN_XML.sub(b"?", content) if kind == "svg" else content)


def figure_format(path: Path) -> str:
    """Returns the format named by the ending of ``path``; raises SbmtError unless matplotlib can write it."""
    formats = FigureCanvasBase.get_supported_filetypes().keys() - {"pgf", "svgz"}  # these need TeX or compression
    kind = path.suffix.removeprefix(".").lower()
    if kind not in formats:
        raise SbmtError(f"a file name ending in one of {', '.join(sorted(formats))}", repr(path.name), "use .png")
    return kind
