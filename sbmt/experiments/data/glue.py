"""Four tasks of GLUE on one sentence or two, and the tables of tab-separated text that they are distributed as."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.locate import open_binary

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class GlueTask:
    """How a task's tables are laid out.

    Attributes:
        name: What the library calls it.
        title: What it asks.
        folder: What GLUE calls it, and the folder of its tables.
        texts: Columns that hold the texts: one or two.
        label: Column of the label; of several with this name the last one counts.
        written: How the table writes label 0, 1, ….
        class_names: What they mean.
        index: Column that numbers the rows, where a table has it.
        undecided: What stands for a label where annotators did not agree; None where that does not occur.
        held_out: Stem of the table of each split that is not trained on: the labels of GLUE's test tables are hidden,
            so the dev tables are what results are reported on.
    """

    name: str
    title: str
    folder: str
    texts: tuple[str, ...]
    label: str
    written: tuple[str, ...]
    class_names: tuple[str, ...]
    index: str = "index"
    undecided: str | None = None
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)


_TASKS = (
    GlueTask(
        "sst2",
        "SST-2: is a sentence about a film positive?",
        "SST-2",
        ("sentence",),
        "label",
        ("0", "1"),
        ("negative", "positive"),
    ),
    GlueTask(
        "qqp",
        "QQP: do two questions ask the same?",
        "QQP",
        ("question1", "question2"),
        "is_duplicate",
        ("0", "1"),
        ("different", "duplicate"),
        index="id",
    ),
    GlueTask(
        "mnli",
        "MNLI: does one sentence follow from another, contradict it, or neither?",
        "MNLI",
        ("sentence1", "sentence2"),
        "gold_label",
        ("contradiction", "neutral", "entailment"),  # so ordered for RoBERTa's tokenisers in the paper's pipeline,
        ("contradiction", "neutral", "entailment"),  # whose F1 depends on which label is 1 and which is 2
        undecided="-",
        held_out=(("test", "dev_matched"), ("mismatched", "dev_mismatched")),
    ),
    GlueTask(
        "qnli",
        "QNLI: does a sentence hold the answer to a question?",
        "QNLI",
        ("question", "sentence"),
        "label",
        ("entailment", "not_entailment"),
        ("entailment", "not_entailment"),
    ),
)

GLUE = {task.name: task for task in _TASKS}
"""By name: ``sst2``, ``qqp``, ``mnli``, ``qnli``."""


@dataclass(frozen=True, eq=False)
class GlueRows:
    """What a table says, row by row.

    Attributes:
        texts: One or two per row, as they are written, blanks at their ends included.
        labels: int64 ``(n_rows,)``; None of a table without labels.
        index: What the table calls its rows; None where it does not number them.
        n_skipped: Rows that are not among these: too short, or without an agreed label.
        n_empty: Texts among these that hold nothing but blanks.
    """

    texts: tuple[tuple[str, ...], ...]
    labels: NDArray[np.int64] | None
    index: tuple[str, ...] | None
    n_skipped: int
    n_empty: int

    def __len__(self) -> int:
        return len(self.texts)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number of every line, from 1, and its columns; only a line feed ends a line, and quotation marks mean nothing."""
    with open_binary(path) as file:
        for number, record in enumerate(file, 1):
            if number == 1:
                record = record.removeprefix(BYTE_ORDER_MARK)
            try:
                line = record.removesuffix(b"\n").removesuffix(b"\r").decode()
            except UnicodeDecodeError as error:
                do = "get the file again, or save it as UTF-8"
                raise SbmtError(f"UTF-8 in {path}, line {number}", f"{error.reason}: {record[:50]!r}", do) from error
            yield number, line.split("\t")


def _columns(path: Path, header: list[str], task: GlueTask, is_labelled: bool) -> tuple[list[int], int]:
    """Where the texts stand, and the label; −1 without labels."""
    wanted = (*task.texts, task.label) if is_labelled else task.texts
    if not set(wanted) <= set(header):
        do = f"give a table of {task.folder}"
        if set(task.texts) <= set(header):
            do += "; GLUE's test tables have no labels and are read with is_labelled=False"
        got = ", ".join(header)[:200] or "an empty line"
        raise SbmtError(f"the columns {', '.join(wanted)} in line 1 of {path}", got, do)
    last = len(header) - 1 - header[::-1].index(task.label) if is_labelled else -1
    return [header.index(name) for name in task.texts], last


def read_glue(path: Path, task: str, *, is_labelled: bool = True) -> GlueRows:
    """Reads a table of GLUE, packed with gzip or plain.

    The first line names the columns, which are found by these names: of ``gold_label``, which dev tables of MNLI have
    beside the labels of single annotators, the last. Columns end at tabs and rows at line feeds, whatever else is in
    them: quotation marks are text, and so are the separators of Unicode. A carriage return before the line feed and a
    mark of the byte order are dropped. Nothing else is: an empty text stays, and is counted.

    A row with fewer columns than the first line is passed over and counted: QQP has some whose question was broken
    by a line feed. So is one of MNLI whose label is ``-``.

    Args:
        path: The table.
        task: ``sst2``, ``qqp``, ``mnli`` or ``qnli``.
        is_labelled: Whether the table has labels. GLUE's test tables have none.

    Raises:
        SbmtError: If a column is missing, a row has too many, a label is none of the task's, a line is not UTF-8, or no
            row is left; with file and line.

    Source: Wang et al., GLUE (ICLR 2019).

    Cost: one pass; memory for the texts alone.
    """
    layout = choose("task", task, GLUE)
    records = _records(path)
    _, header = next(records, (0, []))
    if not header:
        raise SbmtError(f"rows of {layout.folder} in {path}", "an empty file", "get the file again")
    at, label_at = _columns(path, header, layout, is_labelled)
    index_at = header.index(layout.index) if layout.index in header else -1
    ids = {written: label for label, written in enumerate(layout.written)}
    texts: list[tuple[str, ...]] = []
    labels: list[int] = []
    index: list[str] = []
    n_skipped = 0
    for line, columns in records:
        if len(columns) > len(header):
            expected = f"{len(header)} columns in {path}, line {line}, as in its line 1"
            raise SbmtError(expected, len(columns), "mend that line, or get the file again")
        if len(columns) < len(header) or (is_labelled and columns[label_at] == layout.undecided):
            n_skipped += 1
            continue
        if is_labelled:
            if columns[label_at] not in ids:
                expected = f"one of the labels {', '.join(ids)} in {path}, line {line}"
                raise SbmtError(expected, repr(columns[label_at][:50]), "mend that line, or get the file again")
            labels.append(ids[columns[label_at]])
        texts.append(tuple(columns[i] for i in at))
        if index_at >= 0:
            index.append(columns[index_at])
    if not texts:
        got = f"none, and {n_skipped} that are too short or undecided"
        raise SbmtError(f"rows of {layout.folder} in {path}", got, "get the file again")
    return GlueRows(
        tuple(texts),
        np.array(labels, dtype=np.int64) if is_labelled else None,
        tuple(index) if index_at >= 0 else None,
        n_skipped,
        sum(not text.strip() for row in texts for text in row),
    )
