"""ListOps from files: the examples that Long Range Arena published."""

from functools import partial
from pathlib import Path

from sbmt.errors import SbmtError
from sbmt.experiments.data.listops.expressions import DIGITS, encode_expression, evaluate_expression
from sbmt.experiments.data.listops.source import make_source, with_difficulty
from sbmt.experiments.data.locate import checked_sha256, columns_of, find_files, missing, read_lines
from sbmt.experiments.data.source import Examples, Shard, Source, by_shard

_FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
_SUBFOLDERS = ("listops-1000", "listops", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
_GET = (
    "unpack https://storage.googleapis.com/long-range-arena/lra_release.gz (a gzipped tar archive of several GB), or "
    "generate the examples instead"
)
_FETCH = "fetch the file again"


def listops_files(folder: Path | str, *, name: str = "listops") -> Source:
    """Long Range Arena's own examples, from its three files.

    Args:
        folder: Holds ``basic_train.tsv``, ``basic_val.tsv`` and ``basic_test.tsv``, or the unpacked archive that does.
        name: Name of the folder in which the prepared examples are kept.

    Returns:
        A source with one shard per file and the extras ``depth``, ``n_operators`` and ``digest``.

    Raises:
        SbmtError: If a file is missing. From a shard, with the file's name and the line, if a row is damaged, its
            expression is malformed, or its label is not the expression's value.

    Cost: about a minute for the 100,000 published examples, each of which is evaluated.
    """
    folder = Path(folder)
    found = find_files(folder, _FILES.values(), _SUBFOLDERS)
    if len(found) < len(_FILES):
        raise missing(_FILES.values(), folder, found, _GET)
    sums = {name: checked_sha256(path) for name, path in found.items()}
    shards = tuple(Shard(split, partial(_read, found[name]), split) for split, name in _FILES.items())
    return make_source(name, "official", {"sha256": sums}, shards, by_shard)


def _read(path: Path) -> Examples:
    """All examples of a file."""
    expressions, labels = [], []
    for number, (_, line) in enumerate(read_lines(path), start=1):
        where = f"line {number} of {path}"
        columns = [column.decode(errors="replace") for column in columns_of(line)]
        if not line.endswith(b"\n"):
            raise SbmtError(f"a line feed after {where}", repr(line[-20:]), f"{_FETCH}, it is cut off")
        if number == 1:
            if columns != ["Source", "Target"]:
                got = repr("\t".join(columns)[:40])
                raise SbmtError(f"the header Source, Target in {where}", got, "give Long Range Arena's file")
            continue
        if len(columns) != 2:
            raise SbmtError(f"2 columns in {where}", len(columns), _FETCH)
        expression, value = _evaluated(columns[0], where)
        if columns[1] not in DIGITS:
            raise SbmtError(f"a label 0 … 9 in {where}", repr(columns[1]), _FETCH)
        if int(columns[1]) != value:
            raise SbmtError(f"the label {value}, the value of the expression, in {where}", columns[1], _FETCH)
        expressions.append(expression)
        labels.append(value)
    if not labels:
        raise SbmtError(f"a header and rows in {path}", "none", _FETCH)
    return with_difficulty(expressions, labels)


def _evaluated(text: str, where: str) -> tuple[bytes, int]:
    """The symbols and the value of an expression."""
    try:
        expression = encode_expression(text)
        return expression, evaluate_expression(expression)
    except SbmtError as error:
        expected, got, do = error.args
        raise SbmtError(f"{expected} in {where}", got, do) from None
