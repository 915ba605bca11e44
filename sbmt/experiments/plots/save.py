"""Figures on disk."""

import io
from pathlib import Path
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.experiments.files import write_bytes


def figure_format(path: Path) -> str:
    """The format that the ending of ``path`` names.

    Raises:
        SbmtError: If matplotlib cannot write it.
    """
    formats = FigureCanvasBase.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in formats:
        raise SbmtError(f"a file ending among {', '.join(sorted(formats))}", repr(path.name), "use .png")
    return kind


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure whole or not at all; the ending of ``path`` names the format.

    Raises:
        SbmtError: If the format is unknown or the file cannot be written.
    """
    kind = figure_format(path)
    buffer = io.BytesIO()
    options: dict[str, Any] = (
        {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}} if kind == "png" else {}
    )
    figure.savefig(buffer, format=kind, **options)  # without the version, the same figure gives the same bytes
    write_bytes(path, buffer.getvalue())
