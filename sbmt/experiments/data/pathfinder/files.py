"""Pathfinder from files: the images of Long Range Arena, PNG files in folders with a table of metadata for each."""

import hashlib
import io
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.locate import read_whole
from sbmt.experiments.data.pathfinder.source import make_source
from sbmt.experiments.data.source import Examples, Shard, Source

DIFFICULTY = "curv_contour_length_14"
"""The hardest of three kinds, for which results are usually published."""

ARCHIVE = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
FETCH = "get the file again, with everything beside it in lra_release.gz"
NO_PICKLE = "a pickle can run code and is never opened: if you trust one, save it with np.save(path, rows.astype(str))"


@dataclass(frozen=True)
class Row:
    """What a metadata file says about an image."""

    where: str  # the line in the metadata, for error messages
    path: Path  # the file of the image
    label: int  # 1 if the discs are joined, else 0
    contour_length: float  # number of paddles of a long snake; NaN if the line does not contain it
    distractor_length: float  # number of paddles of a short snake; NaN if the line does not contain it


def read_rows(metadata: Path, folder: Path) -> list[Row]:
    """Reads a metadata file, whose paths are relative to ``folder``.

    Each line describes an image: sub-folder, file name, number, label, continuity, contour length, distractor length,
    and more fields that are ignored. The file is either UTF-8 text, with blanks between fields and line feeds between
    lines, or an array of strings as ``np.save`` writes it. Nothing is unpickled.

    Raises:
        SbmtError: If the file is of neither kind, has no lines, or a line has no image or label.
    """
    content = read_whole(metadata)
    try:
        lines = _rows_of_array(content) if content.startswith(b"\x93NUMPY") else _rows_of_text(content.decode())
    except (ValueError, TokenError, MemoryError) as error:
        do = f"{FETCH}; {NO_PICKLE}"
        raise SbmtError(f"UTF-8 text or an array of strings in {metadata}", f"something else ({error})", do) from error
    if not lines:
        raise SbmtError(f"lines in {metadata}", "none", FETCH)
    return [_row(fields, f"line {n} of {metadata}", folder) for n, fields in enumerate(lines, start=1)]


def _rows_of_text(text: str) -> list[list[str]]:
    return [line.removesuffix("\r").split(" ") for line in text.removesuffix("\n").split("\n")] if text else []


def _rows_of_array(content: bytes) -> list[list[str]]:
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if array.dtype.kind not in "US" or array.ndim != 2:
        raise ValueError(f"{array.dtype} of shape {array.shape}")
    return [[field.decode() if isinstance(field, bytes) else field for field in row] for row in array.tolist()]


def _row(fields: list[str], where: str, folder: Path) -> Row:
    if len(fields) < 4:
        raise SbmtError(f"folder, file, number and label in {where}", f"{len(fields)} fields", FETCH)
    path = PurePosixPath(fields[0], fields[1])
    if path.is_absolute() or ".." in path.parts or not fields[1] or not str(path).isprintable():
        raise SbmtError(f"a file below {folder} in {where}", ascii(str(path)), FETCH)
    if fields[3] not in ("0", "1"):
        raise SbmtError(f"label 0 or 1 in {where}", ascii(fields[3]), FETCH)
    lengths = [_number(fields[i]) if len(fields) > i else math.nan for i in (5, 6)]
    return Row(where, folder / path, int(fields[3]), *lengths)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_images(metadata: Path, folder: Path, size: int) -> Examples:
    """The images of a metadata file, in its order, without those whose file is empty; see :func:`read_rows`.

    Raises:
        SbmtError: If the metadata or an image is damaged or of another kind, with the line.
    """
    rows, images = [], []
    for row in read_rows(metadata, folder):
        pixels = read_png(row.path, size, row.where)
        if pixels is not None:
            rows.append(row)
            images.append(pixels)
    return Examples(
        np.array(images, dtype=np.uint8).ravel(),
        np.full((len(rows), 1), size * size, dtype=np.int64),
        np.array([row.label for row in rows], dtype=np.int64),
        {
            "contour_length": np.array([row.contour_length for row in rows], dtype=np.float64),
            "distractor_length": np.array([row.distractor_length for row in rows], dtype=np.float64),
        },
    )


def read_png(path: Path, size: int, where: str) -> NDArray[np.uint8] | None:
    """Grey levels ``(size, size)`` of a PNG file, or None if the file is empty.

    A colour image is accepted if red, green and blue are equal everywhere. ``where`` is the line that names the file.

    Raises:
        SbmtError: If the file is missing, no PNG, damaged, of another size, or not grey.
    """
    from PIL import Image

    content = read_whole(path)
    if not content:
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            image.verify()  # the checksums of all parts; the pixels have to be read from the start again
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != (size, size):
                got = f"{image.width} × {image.height}"
                do = "give the folder of images of that size"
                raise SbmtError(f"{size} × {size} pixels in {path}, which {where} names", got, do)
            kind, pixels = image.mode, np.asarray(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(f"a whole PNG file {path}, which {where} names", f"damage ({error})", FETCH) from error
    if kind == "RGB" and (pixels == pixels[..., :1]).all():
        return pixels[..., 0]
    if kind != "L":
        expected = f"8-bit grey levels in {path}, which {where} names"
        raise SbmtError(expected, f"an image of mode {kind}", FETCH)
    return pixels


def pathfinder_folder(folder: Path | str, seed: int = 0, *, size: int = 32) -> Source:
    """Long Range Arena's own images.

    Token ids are those of :func:`~sbmt.experiments.data.pathfinder.source.pathfinder_source`. The images come in the
    order of the metadata files by number and of their lines; then a permutation drawn by the seed divides them
    8 : 1 : 1. (Long Range Arena divides them unshuffled, and the paper's pipeline after a shuffle without a seed.) The
    release has some images whose file is empty; they are left out and counted in ``settings["n_empty"]``.

    Args:
        folder: A folder with sub-folders ``imgs`` and ``metadata``; or one that contains ``curv_contour_length_14``,
            the hardest kind, or ``pathfinder32`` around it, or what ``lra_release.gz`` unpacks to. To read another
            kind, give its own folder.
        seed: Seed of the splits.
        size: Width and height of an image in pixels, and the number in the name ``pathfinder32``.

    Returns:
        A source of one shard per metadata file, with the extras ``contour_length`` and ``distractor_length`` in
        paddles, which are NaN if a line does not contain them. The checksum is that of the metadata alone.

    Raises:
        SbmtError: If there is no such folder, or an image or metadata file is missing or damaged, with the line and the
            file. Damage within an image is found only when its shard is read.

    Source: Linsley et al. (2018); Tay et al., Long Range Arena (ICLR 2021).
    """
    check_seed(seed)
    check_sizes(size=size)
    place = _find(Path(folder), size)
    files = sorted((place / "metadata").glob("*.npy"), key=_by_number)
    if not files:
        raise SbmtError(f"files .npy in {place / 'metadata'}", "none", f"unpack {ARCHIVE} there again")
    n_empty, digest = 0, hashlib.sha256()
    for file in files:
        n_empty += sum(_is_empty(row.path, row.where) for row in read_rows(file, place))
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    recorded = {
        "difficulty": place.name,
        "size": size,
        "metadata": {"n_files": len(files), "sha256": digest.hexdigest()},
        "n_empty": n_empty,
    }
    shards = tuple(Shard(file.stem, partial(read_images, file, place, size)) for file in files)
    return make_source("pathfinder", "official", recorded, shards, seed)


def _find(folder: Path, size: int) -> Path:
    """The folder with images and metadata."""
    inner = f"pathfinder{size}/{DIFFICULTY}"
    for below in ("", DIFFICULTY, inner, f"lra_release/{inner}", f"lra_release/lra_release/{inner}"):
        place = folder / below
        if (place / "imgs").is_dir() and (place / "metadata").is_dir():
            return place.resolve()
    raise SbmtError(
        f"folders imgs and metadata in {folder}, its {inner} or its lra_release",
        "no such folders" if folder.is_dir() else "no such folder",
        f"unpack {inner} of {ARCHIVE} there, or generate the images instead",
    )


def _by_number(path: Path) -> tuple[bool, int, str]:
    """A key that sorts numbers by value, followed by other names."""
    is_number = path.stem.isascii() and path.stem.isdigit()
    return not is_number, int(path.stem) if is_number else 0, path.stem


def _is_empty(path: Path, where: str) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError as error:
        expected = f"an image {path}, which {where} names"
        raise SbmtError(expected, error.strerror or error, f"unpack {ARCHIVE} again") from error
