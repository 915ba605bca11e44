"""Four tasks of GLUE on sentences and pairs of sentences: their tables, and how their text becomes tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.locate import checked_sha256, columns_of, find_files, missing, read_lines
from sbmt.experiments.data.prepared import Split, divide
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Pool, Source, shuffled
from sbmt.experiments.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class GlueTask:
    """How a task's tables are laid out."""

    folder: str  # its name in GLUE, and of the folder of its tables
    texts: tuple[str, ...]  # the one or two columns with the texts
    label: str  # the column of the label; where several have this name, the last one counts
    written: tuple[str, ...]  # how the table writes label 0, 1, …
    class_names: tuple[str, ...]  # the meaning of label 0, 1, …
    index: str = "index"  # the column that numbers the rows, where a table has one
    undecided: str | None = None  # written where the annotators did not agree on a label
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)  # other splits than train, and the stems of their tables


_MNLI = ("contradiction", "neutral", "entailment")  # as the paper's pipeline has them, on which F1 of 1 and 2 depends
GLUE = {
    "sst2": GlueTask(
        folder="SST-2",
        texts=("sentence",),
        label="label",
        written=("0", "1"),
        class_names=("negative", "positive"),
    ),
    "qqp": GlueTask(
        folder="QQP",
        texts=("question1", "question2"),
        label="is_duplicate",
        written=("0", "1"),
        class_names=("different", "duplicate"),
        index="id",
    ),
    "mnli": GlueTask(
        folder="MNLI",
        texts=("sentence1", "sentence2"),
        label="gold_label",
        written=_MNLI,
        class_names=_MNLI,
        undecided="-",
        held_out=(("test", "dev_matched"), ("mismatched", "dev_mismatched")),
    ),
    "qnli": GlueTask(
        folder="QNLI",
        texts=("question", "sentence"),
        label="label",
        written=("entailment", "not_entailment"),
        class_names=("entailment", "not_entailment"),
    ),
}
"""The tasks by name."""

DEV_SEED = 0
"""Decides which training rows are held out, and the order of the others."""

SAMPLE = {"train": "train_subset", "test": "dev_subset"}
"""Names of the stand-in's tables, without their endings."""

HIDDEN = (
    "GLUE hides the labels of its test table. So test is the official dev table, and dev, by which the checkpoint is "
    "chosen, is held out of the training rows."
)
STAND_IN = (
    "The training rows are a sample of the task's, so results do not compare with published ones. dev is held out of "
    "them; test is {}."
)


@dataclass(frozen=True, eq=False)
class GlueRows:
    """The rows of a table."""

    texts: tuple[tuple[str, ...], ...]  # one or two per row, as they are written, including blanks at their ends
    labels: NDArray[np.int64] | None  # (n_rows,); None for a table without labels
    index: tuple[str, ...]  # the number of each row: the table's own, or if it has none, its place in the table from 0
    n_skipped: int  # rows left out because they are too short or have no agreed label
    n_empty: int  # texts that consist of blanks only

    def __len__(self) -> int:
        return len(self.texts)


def read_glue(path: Path, task: str, *, is_labelled: bool = True) -> GlueRows:
    """Reads a table of GLUE, packed with gzip or plain; ``is_labelled`` is False for GLUE's test tables.

    The first line names the columns. Where several have the label's name, as in the dev tables of MNLI, which also
    hold the labels of single annotators, the last one counts. Columns end at tabs and rows at line feeds, whatever
    else they contain: quotation marks are text, and so are the separators of Unicode.

    A row with fewer columns than the first line is skipped and counted: QQP has some whose question was broken by a
    line feed. So is a row of MNLI whose label is ``-``.

    Source: Wang et al., GLUE (ICLR 2019).
    """
    layout = choose("task", task, GLUE)
    lines = read_lines(path)
    header = _columns(next(lines, b""), f"{path}, line 1")
    wanted = (*layout.texts, layout.label) if is_labelled else layout.texts
    if not set(wanted) <= set(header):
        do = f"give a table of {layout.folder}; GLUE's test tables have no labels: sbmt predict answers them"
        got = repr(", ".join(header)[:200]) if any(header) else "an empty file or line"
        raise SbmtError(f"the columns {', '.join(wanted)} in line 1 of {path}", got, do)
    at = [header.index(name) for name in layout.texts]
    label_at = len(header) - 1 - header[::-1].index(layout.label) if is_labelled else -1
    index_at = header.index(layout.index) if layout.index in header else None
    texts: list[tuple[str, ...]] = []
    labels: list[int] = []
    index: list[str] = []
    n_skipped = 0
    for number, line in enumerate(lines, start=2):
        where, do = f"{path}, line {number}", "correct that line, or get the file again"
        columns = _columns(line, where)
        if len(columns) > len(header) or (len(columns) < len(header) and not line.endswith(b"\n")):
            expected = f"{len(header)} columns in {where}, as in its line 1, and a line feed"
            raise SbmtError(expected, f"{len(columns)} columns", do)
        if len(columns) < len(header) or (is_labelled and columns[label_at] == layout.undecided):
            n_skipped += 1
            continue
        if is_labelled:
            if columns[label_at] not in layout.written:
                expected = f"one of the labels {', '.join(layout.written)} in {where}"
                raise SbmtError(expected, repr(columns[label_at][:50]), do)
            labels.append(layout.written.index(columns[label_at]))
        texts.append(tuple(columns[i] for i in at))
        index.append(str(number - 2) if index_at is None else columns[index_at])
    if not texts:
        got = f"none, and {n_skipped} that are too short or undecided"
        raise SbmtError(f"rows of {layout.folder} in {path}", got, "get the file again")
    n_empty = sum(not text.strip() for row in texts for text in row)
    return GlueRows(tuple(texts), np.array(labels) if is_labelled else None, tuple(index), n_skipped, n_empty)


def _columns(line: bytes, where: str) -> list[str]:
    """The columns of a line as text."""
    try:
        return [column.decode() for column in columns_of(line)]
    except UnicodeDecodeError as error:
        do = "get the file again, or save it as UTF-8"
        raise SbmtError(f"UTF-8 in {where}", f"{error.reason}: {line[:50]!r}", do) from error


def _find(task: GlueTask, path: Path) -> tuple[dict[str, Path], Origin, str]:
    """The table of each split, their origin, and a note on the splits."""
    official = {"train": "train", **dict(task.held_out)}
    names = [stem + end for stem in [*official.values(), *SAMPLE.values()] for end in (".tsv", ".tsv.gz")]
    found = find_files(path, names, [task.folder, f"glue/{task.folder}", f"GLUE/{task.folder}"])

    def tables(stems: dict[str, str]) -> dict[str, Path]:
        """The tables that are there; a plain one is preferred to a packed one."""
        both = {split: found.get(f"{stem}.tsv") or found.get(f"{stem}.tsv.gz") for split, stem in stems.items()}
        return {split: file for split, file in both.items() if file is not None}

    whole, sample = tables(official), tables(SAMPLE)
    if len(whole) == len(official):
        return whole, "official", HIDDEN
    if "train" in sample and "train" not in whole:
        is_official = len(whole) == len(task.held_out)
        held_out = whole if is_official else {split: file for split, file in sample.items() if split == "test"}
        if held_out:
            test = "the official dev table" if is_official else "a sample of training rows, apart from the others"
            return {"train": sample["train"], **held_out}, "stand-in", STAND_IN.format(test)
    get = f"download {task.folder} from https://gluebenchmark.com/tasks and unpack its folder {task.folder}"
    raise missing([f"{stem}.tsv" for stem in official.values()], path, found, get)


def _parts(tables: dict[str, GlueRows]) -> Iterator[tuple[str, Examples]]:
    for split, rows in tables.items():
        documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
        yield split, Examples.of(documents, [] if rows.labels is None else rows.labels.tolist())


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles the training rows, of which the first become dev; the other tables keep their order."""
    tables = {split: np.flatnonzero(pool.splits == split) for split in dict.fromkeys(pool.splits.tolist())}
    train = tables["train"][shuffled(len(tables["train"]), DEV_SEED)]
    n_dev = max(1, min(len(tables["test"]), len(train) // 10))
    return {"train": train[n_dev:], "dev": train[:n_dev]} | {s: rows for s, rows in tables.items() if s != "train"}


def glue_files(task: str, path: Path | str) -> Source:
    """A task of GLUE as UTF-8 bytes, which :func:`encode_split` turns into tokens.

    ``path`` is a folder with ``train.tsv`` and ``dev.tsv`` (for MNLI ``dev_matched.tsv`` and ``dev_mismatched.tsv``),
    plain or packed with gzip, or one that contains such a folder under GLUE's name of the task, such as ``SST-2`` or
    ``glue/SST-2``. If there is no ``train.tsv``, ``train_subset.tsv`` stands in for it, and ``dev_subset.tsv`` for a
    missing dev table; the source is then named ``sst2-subset`` and the like.

    Only GLUE's server knows the labels of its test tables, and papers report on the dev tables. So here ``test`` is
    the official dev table, for MNLI the matched one, and ``mismatched`` is a fourth split. The split that chooses the
    checkpoint, ``dev``, is drawn from the training rows by a recorded seed. It has as many rows as ``test``, but at
    most a tenth of the training rows. Related rows may be on both sides, such as two phrases of one sentence of SST-2,
    so ``dev`` is somewhat easier than ``test``: use it to choose, not to report.
    """
    layout = choose("task", task, GLUE)
    files, origin, note = _find(layout, Path(path))
    sums = {file.name: checked_sha256(file) for file in files.values()}
    tables = {split: read_glue(file, task) for split, file in files.items()}
    rows = {
        files[split].name: {"read": len(table), "skipped": table.n_skipped, "empty_texts": table.n_empty}
        for split, table in tables.items()
    }
    skipped = [
        f"{counts['skipped']:,} rows of {name} were skipped: too short, or without an agreed label"
        for name, counts in rows.items()
        if counts["skipped"]
    ]
    return Source(
        name=task if origin == "official" else f"{task}-subset",
        task=task,
        origin=origin,
        class_names=layout.class_names,
        vocab_size=257,
        first_id=1,
        settings={
            "files": sums,
            "rows": rows,
            "splits": {split: file.name for split, file in files.items()},
            "dev": "as many training rows as test has, at most a tenth",
            "dev_seed": DEV_SEED,
        },
        parts=partial(_parts, tables),
        arrange=_arrange,
        notes=(*skipped, note),
    )


CHUNK = 4096
"""Number of examples whose text is encoded at a time."""


def encode_split(split: Split, tokenizer: Tokenizer, length: int) -> tuple[Split, int]:
    """Encodes the examples of a split: sentences as ``<s> A </s>``, pairs as ``<s> A </s></s> B </s>``.

    The examples have one document or two, as UTF-8 bytes. One of more than ``length`` tokens, special ones included,
    loses tokens at the end of its longer sentence.

    Returns:
        The same examples in memory, in the same order, with one document of token ids each; and the number of examples
        that were cut.
    """
    n_documents = split.lengths.shape[1]
    if split.symbols.dtype != np.uint8 or n_documents not in (1, 2):
        got = f"{n_documents} of {split.symbols.dtype}"
        raise SbmtError("one document or two of bytes", got, "encode examples of text once, as they were prepared")
    rows = [np.empty(0, tokenizer.id_type)]
    n_cut = 0
    for start in range(0, len(split), CHUNK):
        rows_here = [split.documents(example) for example in range(start, min(start + CHUNK, len(split)))]
        try:
            texts = [[bytes(document).decode() for document in documents] for documents in rows_here]
        except UnicodeDecodeError as error:
            do = "prepare the examples again, from files that contain text"
            raise SbmtError("documents in UTF-8", f"{error.reason}: {error.object[:50]!r}", do) from error
        second = [row[1] for row in texts] if n_documents == 2 else None
        packed, n_cut_here = tokenizer.pack([row[0] for row in texts], second, length)
        rows += packed
        n_cut += n_cut_here
    sizes = np.array([len(row) for row in rows[1:]], np.int64)[:, None]
    examples = Examples(np.concatenate(rows), sizes, split.labels)
    encoded = divide(examples, {"": np.arange(len(split))})[""]
    return Split(encoded.indices, split.labels, encoded.symbols, encoded.offsets, sizes, split.extras), n_cut
