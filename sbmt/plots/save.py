"""Figures on disk."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.training.files import write_bytes


def save_figure(figure: Figure, path: Path) -> None:
    """Writes a figure whole or not at all; the ending of ``path`` names the format.

    Raises:
        SbmtError: If the format is unknown or the file cannot be written.
    """
    formats = figure.canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in formats:
        raise SbmtError(f"a file ending among {', '.join(sorted(formats))}", repr(path.name), "use .png")
    buffer = io.BytesIO()
    metadata = {"Software": None} if kind == "png" else None  # the same figure gives the same bytes
    figure.savefig(buffer, format=kind, metadata=metadata)
    write_bytes(path, buffer.getvalue())
