"""Pathfinder from files: the images of Long Range Arena, PNG files in folders with a table of metadata for each."""

import hashlib
import io
import math
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

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
_ARRAY, _PICKLE, _PNG = b"\x93NUMPY", b"\x80", b"\x89PNG\r\n\x1a\n"
_DEPTH, _GREY, _RGB = 8, 0, 2  # bits per level and kinds of colour, as a PNG's header has them


@dataclass(frozen=True)
class Row:
    """What a metadata file says about an image.

    Attributes:
        where: The line in the metadata, for error messages.
        path: The file of the image.
        label: 1 if the discs are joined, else 0.
        contour_length: Number of paddles of a long snake; NaN if the line does not contain it.
        distractor_length: Number of paddles of a short snake; NaN if the line does not contain it.
    """

    where: str
    path: Path
    label: int
    contour_length: float
    distractor_length: float


def read_rows(metadata: Path, folder: Path) -> list[Row]:
    """Reads a metadata file.

    Each line describes an image: sub-folder, file name, number, label, continuity, contour length, distractor length,
    and more fields that are ignored.

    Args:
        metadata: Either UTF-8 text, with blanks between fields and line feeds between lines, or an array of strings
            as ``np.save`` writes it. Nothing is unpickled.
        folder: The folder that contains the sub-folders.

    Raises:
        SbmtError: If the file is of neither kind, has no lines, or a line has no image or label.
    """
    try:
        content = read_whole(metadata)
    except OSError as error:
        raise SbmtError(f"to read {metadata}", error.strerror or error, "check its permissions") from error
    lines = _array(content, metadata) if content.startswith(_ARRAY) else _text(content, metadata)
    if not lines:
        raise SbmtError(f"lines in {metadata}", "none", FETCH)
    return [_row(fields, f"line {n} of {metadata}", folder) for n, fields in enumerate(lines, start=1)]


def read_images(metadata: Path, folder: Path, size: int) -> Examples:
    """The images of a metadata file, in its order, without those whose file is empty.

    Args:
        metadata: As in :func:`read_rows`.
        folder: As in :func:`read_rows`.
        size: Width and height that each image must have, in pixels.

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
    """Grey levels ``(size, size)`` of a PNG file of 8 bits per level, or None if the file is empty.

    A colour image is accepted if red, green and blue are equal everywhere.

    Args:
        path: The file.
        size: Width and height that it must have, in pixels.
        where: The line that names the file, for error messages.

    Raises:
        SbmtError: If the file is missing, no PNG, damaged, of another size, or not grey.
    """
    from PIL import Image

    try:
        content = read_whole(path)
    except OSError as error:
        raise SbmtError(f"an image {path}, which {where} names", error.strerror or error, FETCH) from error
    if not content:
        return None
    header = content[16:26]
    if not content.startswith(_PNG) or content[12:16] != b"IHDR" or len(header) < 10:
        raise SbmtError(f"a PNG file {path}, which {where} names", repr(content[:8]), FETCH)
    width, height = (int.from_bytes(header[i : i + 4], "big") for i in (0, 4))
    if (width, height) != (size, size):
        expected = f"{size} × {size} pixels in {path}, which {where} names"
        raise SbmtError(expected, f"{width} × {height}", "give the folder of images of that size")
    try:
        _check_parts(content)
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise SbmtError(f"a whole PNG file {path}, which {where} names", f"damage ({error})", FETCH) from error
    if header[8] == _DEPTH and header[9] == _RGB and pixels.ndim == 3 and (pixels == pixels[..., :1]).all():
        return pixels[..., 0]
    if header[8] != _DEPTH or header[9] != _GREY:
        got = f"{header[8]} bits and colour type {header[9]}"
        raise SbmtError(f"8-bit grey levels in {path}, which {where} names", got, FETCH)
    return pixels


def _check_parts(content: bytes) -> None:
    """Raises ValueError unless a PNG file is complete and its parts match their checksums."""
    start, kind = len(_PNG), b""
    while kind != b"IEND":
        stop = start + 8 + int.from_bytes(content[start : start + 4], "big")
        kind = content[start + 4 : start + 8]
        if stop + 4 > len(content):
            raise ValueError("it is cut off")
        if zlib.crc32(content[start + 4 : stop]) != int.from_bytes(content[stop : stop + 4], "big"):
            raise ValueError(f"checksum of {kind!r}")
        start = stop + 4


def _text(content: bytes, metadata: Path) -> list[list[str]]:
    """The fields of each line of a text."""
    if content.startswith(_PICKLE):
        raise _pickled(metadata)
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise SbmtError(f"UTF-8 text or an array of strings in {metadata}", str(error), FETCH) from error
    return [line.removesuffix("\r").split(" ") for line in (lines[:-1] if lines[-1] == "" else lines)]


def _array(content: bytes, metadata: Path) -> list[list[str]]:
    """The fields of each row of an array."""
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, kind = read_header[version](file)
        if kind.hasobject:
            raise _pickled(metadata)
        if kind.kind not in "US" or len(shape) != 2:
            raise SbmtError(f"an array of strings, a row per image, in {metadata}", f"{kind} of shape {shape}", FETCH)
        if math.prod(shape) * kind.itemsize != len(content) - file.tell():
            raise ValueError(f"{len(content)} bytes for an array of shape {shape}")
        array, n_codes = np.load(io.BytesIO(content), allow_pickle=False), kind.itemsize // 4
        if kind.kind == "S":
            return [[field.decode("utf-8") for field in row] for row in array.tolist()]
        # NumPy makes strings even of codes that are not characters; Python's decoder refuses those.
        rows = [row.tobytes().decode("utf-32-le") for row in array.astype(kind.newbyteorder("<"))]
        return [[row[i : i + n_codes].rstrip("\0") for i in range(0, len(row), n_codes)] for row in rows]
    except (ValueError, KeyError, EOFError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(f"a whole array in {metadata}", f"damage ({error})", FETCH) from error


def _pickled(metadata: Path) -> SbmtError:
    """The error about a file that could run code."""
    return SbmtError(
        f"UTF-8 text or an array of strings in {metadata}",
        "a pickle, which can run code and is never opened",
        "if you trust it, open it yourself and save it again with np.save(path, rows.astype(str))",
    )


def _row(fields: list[str], where: str, folder: Path) -> Row:
    """Makes a row from its fields."""
    if len(fields) < 4:
        raise SbmtError(f"folder, file, number and label in {where}", f"{len(fields)} fields", FETCH)
    path = PurePosixPath(fields[0], fields[1])
    if path.is_absolute() or ".." in path.parts or not fields[1] or not str(path).isprintable():
        raise SbmtError(f"a file below {folder} in {where}", ascii(str(path)), FETCH)
    if fields[3] not in ("0", "1"):
        raise SbmtError(f"label 0 or 1 in {where}", repr(fields[3]), FETCH)
    lengths = [_number(fields[i]) if len(fields) > i else math.nan for i in (5, 6)]
    return Row(where, folder / path, int(fields[3]), *lengths)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def pathfinder_folder(folder: Path | str, seed: int = 0, *, size: int = 32) -> Source:
    """Long Range Arena's own images.

    Token ids are those of :func:`~sbmt.experiments.data.pathfinder.source.pathfinder_source`. The images come in the
    order of the metadata files by number and of their lines; then a permutation drawn by the seed divides them
    8 : 1 : 1. (Long Range Arena divides them unshuffled, and the pipeline that the paper uses after a shuffle without a
    seed, so neither has these splits.) The release has some images whose file is empty; they are left out and counted
    in ``settings["n_empty"]``.

    Args:
        folder: A folder with sub-folders ``imgs`` and ``metadata``; or one that contains ``curv_contour_length_14``,
            the hardest kind, or ``pathfinder32`` around it, or what ``lra_release.gz`` unpacks to. To read another
            kind, give its own folder.
        seed: Seed of the splits.
        size: Width and height of an image in pixels, and the number in the name ``pathfinder32``.

    Returns:
        A source of one shard per metadata file, with the extras ``contour_length`` and ``distractor_length`` in
        paddles, which are NaN if a line does not contain them.

    Raises:
        SbmtError: If there is no such folder, or an image or metadata file is missing or damaged, with the line and the
            file. Damage within an image is found only when its shard is read.

    Cost: every line and the size of every image are read at once, the images themselves shard by shard. The checksum
        is that of the metadata, not of the images.

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
