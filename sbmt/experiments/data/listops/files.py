"""ListOps from files: the examples that Long Range Arena published."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops.expressions import DIGITS, encode_expression, evaluate_expression
from sbmt.experiments.data.listops.source import make_source, with_difficulty
from sbmt.experiments.data.locate import BYTE_ORDER_MARK, checked_sha256, find_files, missing
from sbmt.experiments.data.source import Examples, Shard, Source, by_shard

_FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
_SUBFOLDERS = ("listops-1000", "listops", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
_GET = (
    "unpack https://storage.googleapis.com/long-range-arena/lra_release.gz (a gzipped tar archive of several GB), or "
    "generate the examples instead"
)
_FETCH = "fetch the file again"


def listops_files(folder: Path, *, name: str = "listops") -> Source:
    """Long Range Arena's own examples, from its three files.

    Every expression is evaluated and compared with its label. A byte-order mark at the start of a file is dropped.

    Args:
        folder: Holds ``basic_train.tsv``, ``basic_val.tsv`` and ``basic_test.tsv``, or the unpacked archive that does.
        name: Name of the folder in which the prepared examples are kept.

    Returns:
        A source with one shard per file and the extras ``depth``, ``n_operators`` and ``digest``.

    Raises:
        SbmtError: If a file is missing. From a shard, with the file's name and the line, if a row is damaged, its
            expression is malformed, or its label is not the expression's value.

    Cost: about a minute for the 100,000 published examples.
    """
    found = find_files(Path(folder), _FILES.values(), _SUBFOLDERS)
    if len(found) < len(_FILES):
        raise missing(_FILES.values(), folder, found, _GET)
    sums = {name: checked_sha256(path) for name, path in found.items()}
    shards = tuple(Shard(split, partial(_read, found[name]), split) for split, name in _FILES.items())
    return make_source(name, "official", {"sha256": sums}, shards, by_shard)


def _read(path: Path) -> Examples:
    """All examples of a file."""
    expressions, labels = [], []
    for number, source, target in _rows(path):
        where = f"in line {number} of {path}"
        try:
            expression = encode_expression(source)
            value = evaluate_expression(expression)
        except SbmtError as error:
            expected, got, do = error.args
            raise SbmtError(f"{expected} {where}", got, do) from None
        if target not in DIGITS:
            raise SbmtError(f"a label 0 … 9 {where}", repr(target), _FETCH)
        if int(target) != value:
            raise SbmtError(f"the label {value}, the value of the expression, {where}", target, _FETCH)
        expressions.append(expression)
        labels.append(value)
    return with_difficulty(expressions, labels)


def _rows(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line numbers from 1 and the two columns, below the header."""
    with path.open("rb") as file:
        number = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                got = repr(line[-20:].decode(errors="replace"))
                raise SbmtError(f"a line feed after line {number} of {path}", got, f"{_FETCH}, it is cut off")
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            # Only a line feed ends a row and only a tab a column: the files use no quoting.
            columns = line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="replace").split("\t")
            if number == 1 and columns != ["Source", "Target"]:
                got = repr("\t".join(columns)[:40])
                raise SbmtError(f"the header Source, Target in line 1 of {path}", got, "give Long Range Arena's file")
            if len(columns) != 2:
                raise SbmtError(f"2 columns in line {number} of {path}", len(columns), _FETCH)
            if number > 1:
                yield number, columns[0], columns[1]
        if number < 2:
            raise SbmtError(f"a header and rows in {path}", f"{number} lines", _FETCH)
