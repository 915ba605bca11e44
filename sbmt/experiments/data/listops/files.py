"""ListOps as a task: the expressions that Long Range Arena published."""

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops.expressions import DIGITS, TOKENS, VOCAB_SIZE, encode_expression
from sbmt.experiments.data.listops.source import with_difficulty
from sbmt.experiments.data.source import Examples, Shard, Source, by_shard

_FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
_SUBFOLDERS = ("", "listops-1000", "listops", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")


def listops_files(folder: Path, *, name: str = "listops") -> Source:
    """Long Range Arena's own examples, from its three files.

    Args:
        folder: Holds ``basic_train.tsv``, ``basic_val.tsv`` and ``basic_test.tsv``, or the unpacked archive that does.
        name: Of the folder that the prepared examples are kept in.

    Returns:
        A source with one shard per file and the extras ``depth``, ``n_operators`` and ``digest``.

    Raises:
        SbmtError: If a file is missing. Later, with its name and the line, if one is damaged.
    """
    found = _find(folder)
    sums = {}
    for path in found.values():
        with path.open("rb") as file:
            sums[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    shards = tuple(Shard(split, partial(_read, path), split) for split, path in found.items())
    return Source(
        name=name,
        task="listops",
        origin="official",
        class_names=DIGITS,
        vocab_size=VOCAB_SIZE,
        first_id=0,
        settings={"sha256": sums, "tokens": list(TOKENS)},
        shards=shards,
        arrange=by_shard,
    )


def _find(folder: Path) -> dict[str, Path]:
    """The file of each split, all from one folder."""
    places = [folder / below for below in _SUBFOLDERS]
    n_there = [sum((place / file).is_file() for file in _FILES.values()) for place in places]
    place = places[n_there.index(max(n_there))]
    missing = [file for file in _FILES.values() if not (place / file).is_file()]
    if missing:
        raise SbmtError(
            f"{', '.join(_FILES.values())} in {folder} or its {_SUBFOLDERS[-1]}",
            f"no {' and no '.join(missing)}",
            "unpack https://storage.googleapis.com/long-range-arena/lra_release.gz there (a gzipped tar archive of "
            "several GB), or generate the examples instead",
        )
    return {split: place / file for split, file in _FILES.items()}


def _read(path: Path) -> Examples:
    """All examples of a file."""
    expressions, labels = [], []
    for number, (source, target) in _rows(path):
        try:
            expressions.append(encode_expression(source))
        except SbmtError as error:
            expected, got, do = error.args
            raise SbmtError(f"{expected} in line {number} of {path}", got, do) from None
        if target not in DIGITS:
            raise SbmtError(f"a label 0 … 9 in line {number} of {path}", repr(target), "fetch the file again")
        labels.append(int(target))
    return with_difficulty(expressions, labels)


def _rows(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    """Line numbers from 1, and the two columns below the header."""
    with path.open("rb") as file:
        number = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                expected = f"an end of line {number} of {path}, the last one"
                raise SbmtError(expected, repr(line[-20:].decode(errors="replace")), "fetch the file again, it is cut")
            # Only a line feed ends a row and only a tab a column: the files quote nothing.
            columns = line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace").split("\t")
            if number == 1 and columns != ["Source", "Target"]:
                got = repr("\t".join(columns)[:40])
                raise SbmtError(f"the header Source, Target in line 1 of {path}", got, "give Long Range Arena's file")
            if len(columns) != 2:
                expected = f"2 columns in line {number} of {path}"
                raise SbmtError(expected, len(columns), "fetch the file again")
            if number > 1:
                yield number, (columns[0], columns[1])
        if number < 2:
            raise SbmtError(f"a header and rows in {path}", f"{number} lines", "fetch the file again")
