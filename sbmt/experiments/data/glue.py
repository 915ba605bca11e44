"""Reads the tables of four GLUE tasks, which classify sentences or pairs of sentences, and encodes their text."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.locate import find_files, missing, read_text, sha256_of
from sbmt.experiments.data.prepared import Split, divide
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Pool, Source, shuffled
from sbmt.experiments.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class GlueTask:
    """The layout of a GLUE task's tables."""

    folder: str  # name of the task in GLUE, and of the folder that contains its tables
    texts: tuple[str, ...]  # the one or two columns that contain text
    label: str  # the label column; if several columns have this name, the last one is used
    written: tuple[str, ...]  # labels 0, 1, … as written in the table; "-" in MNLI means that annotators disagreed
    class_names: tuple[str, ...]  # meanings of labels 0, 1, …
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)  # pairs of a split other than train and its table's stem


_MNLI = ("contradiction", "neutral", "entailment")  # in the order of the paper's pipeline, which affects its F1
_HELD_OUT = (("test", "dev_matched"), ("mismatched", "dev_mismatched"))
_QNLI = ("entailment", "not_entailment")
_QUESTIONS = ("question1", "question2")
GLUE = {
    "sst2": GlueTask("SST-2", ("sentence",), "label", ("0", "1"), ("negative", "positive")),
    "qqp": GlueTask("QQP", _QUESTIONS, "is_duplicate", ("0", "1"), ("different", "duplicate")),
    "mnli": GlueTask("MNLI", ("sentence1", "sentence2"), "gold_label", _MNLI, _MNLI, held_out=_HELD_OUT),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", _QNLI, _QNLI),
}

DEV_SEED = 0  # seed that selects the held-out training rows and shuffles the others
CHUNK = 4096  # number of examples encoded at a time
SAMPLE = {"train": "train_subset", "test": "dev_subset"}  # stems of the sampled tables
HIDDEN = "GLUE does not publish its test labels: test is the official dev table, and dev is held out of train."
STAND_IN = "Train and dev are a sample of the training rows, test {}. Results are not comparable with published ones."


@dataclass(frozen=True, eq=False)
class GlueRows:
    """The rows of a GLUE table."""

    texts: tuple[tuple[str, ...], ...]  # one or two texts per row, unchanged, including any surrounding blanks
    labels: NDArray[np.int64] | None  # (n_rows,); None for a table without labels
    index: tuple[str, ...]  # number of each row in the table, counted from 0 as in GLUE
    n_skipped: int  # rows left out because of missing columns or disputed labels
    n_empty: int  # texts that contain only blanks

    def __len__(self) -> int:
        return len(self.texts)


def read_glue(path: Path, task: str, *, is_labelled: bool = True) -> GlueRows:
    """Reads a GLUE table, plain or compressed with gzip; GLUE's test tables require ``is_labelled=False``.

    Rows with fewer columns than the header, and MNLI rows labelled ``-``, are skipped and counted.

    Source: Wang et al., GLUE (ICLR 2019).
    """
    layout = choose("task", task, GLUE)
    lines = read_text(path)
    header = _columns(next(lines, ("", ""))[1])
    wanted = (*layout.texts, layout.label) if is_labelled else layout.texts
    if not set(wanted) <= set(header):
        do = f"give a labelled table of {layout.folder}; for GLUE's test tables, use sbmt predict"
        raise SbmtError(f"the columns {', '.join(wanted)} in line 1 of {path}", repr(", ".join(header)[:200]), do)
    at = [header.index(name) for name in layout.texts]
    label_at = len(header) - 1 - header[::-1].index(layout.label) if is_labelled else -1
    rows: list[tuple[tuple[str, ...], int, str]] = []
    n_read, label, do = 0, -1, "correct that line, or get the file again"
    for n_read, (where, line) in enumerate(lines, start=1):
        columns = _columns(line)
        if len(columns) > len(header) or (len(columns) < len(header) and not line.endswith("\n")):
            expected = f"{len(header)} columns, as in line 1, and a line feed in {where}"
            raise SbmtError(expected, f"{len(columns)} columns", do)
        if len(columns) < len(header) or (is_labelled and task == "mnli" and columns[label_at] == "-"):
            continue
        if is_labelled:
            if columns[label_at] not in layout.written:
                expected = f"one of the labels {', '.join(layout.written)} in {where}"
                raise SbmtError(expected, repr(columns[label_at][:50]), do)
            label = layout.written.index(columns[label_at])
        rows.append((tuple(columns[i] for i in at), label, str(n_read - 1)))
    if not rows:
        got = f"only {n_read} rows with too few columns or no agreed label"
        raise SbmtError(f"rows of {layout.folder} in {path}", got, "get the file again")
    texts, labels, index = zip(*rows, strict=True)
    n_empty = sum(not text.strip() for row in texts for text in row)
    return GlueRows(texts, np.array(labels) if is_labelled else None, index, n_read - len(rows), n_empty)


def _columns(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def _find(task: GlueTask, path: Path) -> tuple[dict[str, Path], Origin, str]:
    """Returns the table of each split, the origin of the tables and a note on the splits."""
    official = {"train": "train", **dict(task.held_out)}
    names = [stem + end for stem in [*official.values(), *SAMPLE.values()] for end in (".tsv", ".tsv.gz")]
    found = find_files(path, names, [task.folder, f"glue/{task.folder}", f"GLUE/{task.folder}"])
    choices: list[tuple[dict[str, str], Origin, str]] = [
        (official, "official", HIDDEN),
        (official | {"train": SAMPLE["train"]}, "stand-in", STAND_IN.format("is the official dev table")),
        (SAMPLE, "stand-in", STAND_IN.format("is a separate sample of training rows")),
    ]
    for stems, origin, note in choices:
        tables = {split: found.get(f"{stem}.tsv") or found.get(f"{stem}.tsv.gz") for split, stem in stems.items()}
        if all(tables.values()):
            return {split: file for split, file in tables.items() if file}, origin, note
    get = f"download {task.folder} from https://gluebenchmark.com/tasks and unpack its folder {task.folder}"
    raise missing([f"{stem}.tsv" for stem in official.values()], path, found, get)


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles the training rows and holds out the first of them as dev. All other tables keep their order."""
    tables = {split: np.flatnonzero(pool.splits == split) for split in dict.fromkeys(pool.splits.tolist())}
    train = tables["train"][shuffled(len(tables["train"]), DEV_SEED)]
    n_dev = max(1, min(len(tables["test"]), len(train) // 10))
    return {"train": train[n_dev:], "dev": train[:n_dev]} | {s: rows for s, rows in tables.items() if s != "train"}


def glue_files(task: str, path: Path | str) -> Source:
    """Returns the source of a GLUE task's examples as UTF-8 bytes, which :func:`encode_split` converts to tokens.

    GLUE does not publish the labels of its test tables. Therefore, ``test`` is the official dev table, and ``dev`` is
    drawn from the training rows. Sampled tables named ``*_subset.tsv`` are used where official tables are missing.
    """
    layout = choose("task", task, GLUE)
    files, origin, note = _find(layout, Path(path))
    tables = {split: read_glue(file, task) for split, file in files.items()}
    counts = {
        files[split].name: {"read": len(table), "skipped": table.n_skipped, "empty_texts": table.n_empty}
        for split, table in tables.items()
    }
    skipped = {name: of["skipped"] for name, of in counts.items() if of["skipped"]}
    notes = [f"{n:,} skipped rows of {name} have too few columns or no agreed label" for name, n in skipped.items()]

    def parts() -> Iterator[tuple[str, Examples]]:
        for split, rows in tables.items():
            documents = [tuple(text.encode() for text in texts) for texts in rows.texts]
            yield split, Examples.of(documents, [] if rows.labels is None else rows.labels.tolist())

    settings = {
        "files": {file.name: sha256_of(file) for file in files.values()},
        "rows": counts,
        "splits": {split: file.name for split, file in files.items()},
        "dev": "as many training rows as test has, at most a tenth",
        "dev_seed": DEV_SEED,
    }
    name = task if origin == "official" else f"{task}-subset"
    return Source(name, task, origin, layout.class_names, 257, 1, settings, parts, _arrange, notes=(*notes, note))


def encode_split(split: Split, tokenizer: Tokenizer, length: int) -> tuple[Split, int]:
    """Encodes each example as at most ``length`` token ids, and counts the examples that were truncated."""
    rows = [np.empty(0, tokenizer.id_type)]
    n_cut = 0
    for start in range(0, len(split), CHUNK):
        examples = range(start, min(start + CHUNK, len(split)))
        texts = [[bytes(document).decode() for document in split.documents(example)] for example in examples]
        first, *second = map(list, zip(*texts, strict=True))
        packed, n_cut_here = tokenizer.pack(first, second[0] if second else None, length)
        rows += packed
        n_cut += n_cut_here
    sizes = np.array([len(row) for row in rows[1:]], np.int64)[:, None]
    encoded = Examples(np.concatenate(rows), sizes, split.labels, split.extras)
    return divide(encoded, {"": np.arange(len(split))})[""], n_cut
