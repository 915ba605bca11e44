"""Four tasks of GLUE on sentences and pairs of sentences: their tables, and how their text becomes tokens."""

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
    """The layout of a task's tables."""

    folder: str  # its name in GLUE, and of the folder of its tables
    texts: tuple[str, ...]  # the one or two columns with the texts
    label: str  # the column of the label; where several have this name, the last one counts
    written: tuple[str, ...]  # how the table writes label 0, 1, …; MNLI also has "-", where annotators did not agree
    class_names: tuple[str, ...]  # the meaning of label 0, 1, …
    held_out: tuple[tuple[str, str], ...] = (("test", "dev"),)  # other splits than train, and the stems of their tables


_MNLI = ("contradiction", "neutral", "entailment")  # in the pipeline's order, on which the F1 of 1 and 2 depends
_HELD_OUT = (("test", "dev_matched"), ("mismatched", "dev_mismatched"))
_QNLI = ("entailment", "not_entailment")
_QUESTIONS = ("question1", "question2")
GLUE = {
    "sst2": GlueTask("SST-2", ("sentence",), "label", ("0", "1"), ("negative", "positive")),
    "qqp": GlueTask("QQP", _QUESTIONS, "is_duplicate", ("0", "1"), ("different", "duplicate")),
    "mnli": GlueTask("MNLI", ("sentence1", "sentence2"), "gold_label", _MNLI, _MNLI, held_out=_HELD_OUT),
    "qnli": GlueTask("QNLI", ("question", "sentence"), "label", _QNLI, _QNLI),
}

DEV_SEED = 0  # decides which training rows are held out, and the order of the others
CHUNK = 4096  # examples whose text is encoded at a time
SAMPLE = {"train": "train_subset", "test": "dev_subset"}  # the stand-in's tables
HIDDEN = "GLUE hides the labels of its test table: test is the official dev table, dev is held out of train."
STAND_IN = "Training rows are a sample, so results do not compare with published ones: dev is some of them, test is {}."


@dataclass(frozen=True, eq=False)
class GlueRows:
    """The rows of a table."""

    texts: tuple[tuple[str, ...], ...]  # one or two per row, as they are written, including blanks at their ends
    labels: NDArray[np.int64] | None  # (n_rows,); None for a table without labels
    index: tuple[str, ...]  # the place of each row in the table, from 0, as GLUE's own tables number them
    n_skipped: int  # rows left out because they are too short or annotators did not agree on a label
    n_empty: int  # texts that consist of blanks only

    def __len__(self) -> int:
        return len(self.texts)


def read_glue(path: Path, task: str, *, is_labelled: bool = True) -> GlueRows:
    """Reads a table of GLUE, packed with gzip or plain; ``is_labelled`` is False for GLUE's test tables.

    Rows with fewer columns than the first line, and those of MNLI with the label ``-``, are skipped and counted.

    Source: Wang et al., GLUE (ICLR 2019).
    """
    layout = choose("task", task, GLUE)
    lines = read_text(path)
    header = _columns(next(lines, ("", ""))[1])
    wanted = (*layout.texts, layout.label) if is_labelled else layout.texts
    if not set(wanted) <= set(header):
        do = f"give a table of {layout.folder}; GLUE's test tables have no labels: sbmt predict answers them"
        raise SbmtError(f"the columns {', '.join(wanted)} in line 1 of {path}", repr(", ".join(header)[:200]), do)
    at = [header.index(name) for name in layout.texts]
    label_at = len(header) - 1 - header[::-1].index(layout.label) if is_labelled else -1
    rows: list[tuple[tuple[str, ...], int, str]] = []
    n_read, label, do = 0, -1, "correct that line, or get the file again"
    for n_read, (where, line) in enumerate(lines, start=1):
        columns = _columns(line)
        if len(columns) > len(header) or (len(columns) < len(header) and not line.endswith("\n")):
            expected = f"{len(header)} columns in {where}, as in its line 1, and a line feed"
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
        got = f"none, and {n_read} that are too short or undecided"
        raise SbmtError(f"rows of {layout.folder} in {path}", got, "get the file again")
    texts, labels, index = zip(*rows, strict=True)
    n_empty = sum(not text.strip() for row in texts for text in row)
    return GlueRows(texts, np.array(labels) if is_labelled else None, index, n_read - len(rows), n_empty)


def _columns(line: str) -> list[str]:
    return line.removesuffix("\n").removesuffix("\r").split("\t")


def _find(task: GlueTask, path: Path) -> tuple[dict[str, Path], Origin, str]:
    """The table of each split, the origin of all, and a note on the splits."""
    official = {"train": "train", **dict(task.held_out)}
    names = [stem + end for stem in [*official.values(), *SAMPLE.values()] for end in (".tsv", ".tsv.gz")]
    found = find_files(path, names, [task.folder, f"glue/{task.folder}", f"GLUE/{task.folder}"])
    choices: list[tuple[dict[str, str], Origin, str]] = [
        (official, "official", HIDDEN),
        (official | {"train": SAMPLE["train"]}, "stand-in", STAND_IN.format("the official dev table")),
        (SAMPLE, "stand-in", STAND_IN.format("a sample of training rows, apart from the others")),
    ]
    for stems, origin, note in choices:
        tables = {split: found.get(f"{stem}.tsv") or found.get(f"{stem}.tsv.gz") for split, stem in stems.items()}
        if all(tables.values()):
            return {split: file for split, file in tables.items() if file}, origin, note
    get = f"download {task.folder} from https://gluebenchmark.com/tasks and unpack its folder {task.folder}"
    raise missing([f"{stem}.tsv" for stem in official.values()], path, found, get)


def _arrange(pool: Pool) -> Arrangement:
    """Shuffles the training rows, of which the first become dev; the other tables keep their order."""
    tables = {split: np.flatnonzero(pool.splits == split) for split in dict.fromkeys(pool.splits.tolist())}
    train = tables["train"][shuffled(len(tables["train"]), DEV_SEED)]
    n_dev = max(1, min(len(tables["test"]), len(train) // 10))
    return {"train": train[n_dev:], "dev": train[:n_dev]} | {s: rows for s, rows in tables.items() if s != "train"}


def glue_files(task: str, path: Path | str) -> Source:
    """A task of GLUE as UTF-8 bytes, which :func:`encode_split` turns into tokens.

    Only GLUE's server has the labels of its test tables: here ``test`` is the official dev table, and ``dev`` is drawn
    from the training rows. Samples of the tables, named ``*_subset.tsv``, stand in for those that are missing.
    """
    layout = choose("task", task, GLUE)
    files, origin, note = _find(layout, Path(path))
    tables = {split: read_glue(file, task) for split, file in files.items()}
    counts = {
        files[split].name: {"read": len(table), "skipped": table.n_skipped, "empty_texts": table.n_empty}
        for split, table in tables.items()
    }
    skipped = {name: of["skipped"] for name, of in counts.items() if of["skipped"]}
    notes = [f"{n:,} rows of {name} were skipped: too short, or without an agreed label" for name, n in skipped.items()]

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
    """Packs each example into one document of at most ``length`` token ids; also returns how many were cut."""
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
