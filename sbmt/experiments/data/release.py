"""Reads the ListOps and Pathfinder files of the Long Range Arena release, after ``lra_release.gz`` is unpacked."""

import hashlib
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops import DIGITS, TOKENS, VOCAB_SIZE, evaluate_expression
from sbmt.experiments.data.locate import find_files, missing, read_text, sha256_of
from sbmt.experiments.data.source import Examples, Source, tenths
from sbmt.experiments.files import read_file, tell_os_errors

ARCHIVE = "https://storage.googleapis.com/long-range-arena/lra_release.gz"
AGAIN = "download the file again"
PLACES = "", "lra_release", "lra_release/lra_release"
LISTOPS = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
LISTOPS_FOLDERS = "listops-1000", "listops", *(f"{place}/listops-1000" for place in PLACES[1:])
PATHFINDER = "pathfinder32/curv_contour_length_14"
"""Folder of the hardest of three variants, to which published results usually refer."""
_ID = {token: i for i, token in enumerate(TOKENS, start=1)}


def listops_files(folder: Path) -> Source:
    """Returns a source that reads ListOps examples from ``basic_{train,val,test}.tsv``."""
    found = find_files(folder, LISTOPS.values(), LISTOPS_FOLDERS)
    if len(found) < len(LISTOPS):
        get = f"download and unpack {ARCHIVE}, or omit --from to generate them"
        raise missing(LISTOPS.values(), folder, found, get)

    def parts() -> Iterator[tuple[str, Examples]]:
        return ((split, _expressions(found[file])) for split, file in LISTOPS.items())

    settings = {"sha256": {name: sha256_of(path) for name, path in found.items()}, "tokens": list(TOKENS)}
    return Source("listops", "listops", "official", DIGITS, VOCAB_SIZE, 0, settings, parts)


def _expressions(path: Path) -> Examples:
    """Reads a table of expressions and their values. Parentheses are ignored, since they are redundant."""
    lines = read_text(path)
    if next(lines, ("", ""))[1].split() != ["Source", "Target"]:
        raise SbmtError(f"Source and Target in line 1 of {path}", "a different header", "use Long Range Arena's file")
    found = []
    for where, line in lines:
        text, _, label = line.removesuffix("\n").rpartition("\t")
        tokens = text.replace("(", "").replace(")", "").replace("]", "X").split()
        symbols = bytes(_ID.get(token, 0) for token in tokens)  # 0 is not a valid symbol
        try:
            is_right = line.endswith("\n") and str(evaluate_expression(symbols)) == label.strip()
        except SbmtError:
            is_right = False
        if not is_right:
            raise SbmtError(f"an expression, a tab, its value and a line feed in {where}", repr(line[-40:]), AGAIN)
        found.append((symbols, int(label)))
    return Examples.of([(symbols,) for symbols, _ in found], [label for _, label in found])


def pathfinder_files(folder: Path) -> Source:
    """Returns a source of the images in ``imgs``, in the order of ``metadata``. Empty image files are skipped."""
    inner = ("", PATHFINDER.split("/")[1], *(f"{place}/{PATHFINDER}".lstrip("/") for place in PLACES))
    with tell_os_errors(f"read imgs and metadata in {folder}", "check its permissions"):  # glob would hide errors
        place = next((folder / x for x in inner if (folder / x / "imgs").is_dir()), folder)
        found = list((place / "metadata").iterdir()) if (place / "metadata").exists() else []
    files = [path for path in found if path.suffix == ".npy"]
    files.sort(key=lambda path: (len(path.stem), path.stem))
    if not files:
        do = f"download {ARCHIVE} and unpack {PATHFINDER} there, or omit --from to generate them"
        raise SbmtError(f"the folders imgs and metadata in {folder}", "none", do)

    def parts() -> Iterator[tuple[str, Examples]]:
        for file in files:
            kept = list(filter(None, (_image(place, *line) for line in read_text(file))))  # text, despite its suffix
            symbols = np.concatenate([np.empty(0, np.uint8), *(pixels for pixels, _ in kept)])
            labels = np.array([label for _, label in kept], np.int64)
            yield "", Examples(symbols, np.full((len(kept), 1), 32 * 32), labels)

    digest = hashlib.sha256("".join(sha256_of(file) for file in files).encode()).hexdigest()
    settings = {"difficulty": place.name, "size": 32, "metadata": {"n_files": len(files), "sha256": digest}}
    classes, arrange = ("apart", "connected"), partial(tenths, seed=0)
    return Source("pathfinder", "pathfinder", "official", classes, 256, 0, settings, parts, arrange)


def _image(folder: Path, where: str, line: str) -> tuple[NDArray[np.uint8], int] | None:
    """Reads the image named in a metadata line (folder, file, number, label). Returns None if the file is empty."""
    from PIL import Image

    fields = line.split()
    path = PurePosixPath(*fields[:2])
    if len(fields) < 4 or fields[3] not in ("0", "1") or path.is_absolute() or ".." in path.parts:
        raise SbmtError(f"a folder, file, number and label 0 or 1 in {where}", line[:80] or "an empty line", AGAIN)
    if not (content := read_file(folder / path, do=f"correct {where}, or {AGAIN}")):
        return None
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            pixels = np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow may raise almost anything for a damaged image
        raise SbmtError(f"an intact PNG file {path}, named in {where}", str(error)[:200], AGAIN) from error
    if pixels.shape != (32, 32, 3) or (pixels != pixels[..., :1]).any():
        raise SbmtError(f"32 × 32 grey levels in {path}, named in {where}", "a different size or colours", AGAIN)
    return pixels[..., 0].ravel(), int(fields[3])
