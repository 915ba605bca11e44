"""Figures on disk."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.experiments.files import write_bytes
from sbmt.experiments.plots.style import use_style


@contextmanager
def saved_figure(path: Path, width: float, height: float) -> Iterator[Figure]:
    """A figure in the house style, in inches, written to ``path`` at the end of the block, whole or not at all."""
    kind = figure_format(path)
    with use_style():
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        buffer = io.BytesIO()
        # Without matplotlib's version in it, the same figure gives the same bytes.
        options: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
        try:
            figure.savefig(buffer, format=kind, **options if kind == "png" else {})
        except ValueError as error:  # such as a SOURCE_DATE_EPOCH that is no number
            raise SbmtError(f"a figure that matplotlib writes as {kind}", error, "correct that, or use .png") from error
        write_bytes(path, buffer.getvalue())


def figure_format(path: Path) -> str:
    """The format that the ending of ``path`` names, if matplotlib can write it."""
    formats = FigureCanvasBase.get_supported_filetypes().keys() - {"pgf"}  # which needs TeX
    kind = path.suffix.removeprefix(".").lower()
    if kind not in formats:
        raise SbmtError(f"a file ending among {', '.join(sorted(formats))}", repr(path.name), "use .png")
    return kind
