"""GLUE's tables as sources of examples: which files are looked for where, and which rows are reported on."""

from functools import partial
from pathlib import Path

import numpy as np

from sbmt.errors import choose
from sbmt.experiments.data.glue import GLUE, GlueTask, read_glue
from sbmt.experiments.data.locate import checked_sha256, find_files, missing
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Pool, Shard, Source, shuffled

DEV_SEED = 0
"""Decides which training rows are held out, and the order of the others."""

SAMPLE = {"train": "train_subset", "test": "dev_subset"}
"""Stems of the stand-in's tables."""

HIDDEN = (
    "GLUE hides the labels of its test table. So test is the official dev table, and dev, by which the checkpoint is "
    "chosen, is held out of the training rows."
)
STAND_IN = (
    "The training rows are a sample of the task's, so results do not compare with published ones. dev is held out of "
    "them; test is {test}."
)
TESTS = {True: "the official dev table", False: "a sample of training rows, apart from the others"}
"""What the stand-in is tested on, by whether the official table is there."""

COPIES = {
    "343b9cff04996b46be04073bc1c21d6415dee35acbbf529ed36b4754d6f493db",  # SST-2/train.tsv.gz
    "2b362b78d36eccad2d3304110e76d95a56654f860a5913f91fe4b12546d439b4",  # SST-2/dev.tsv.gz
    "c7860d55bda6cdf7f9ca2f37d7bcdd4a77cefa05b73bb9fe9013ee8dac30655e",  # QNLI/dev.tsv.gz
}
COPY = " Tables of public copies are among them: as many rows as GLUE's have, but not compared with its own files."


def _find(task: GlueTask, path: Path) -> tuple[dict[str, Path], Origin, str]:
    """The table of each split, where they are from, and a note on what each split is."""
    official = {"train": "train", **dict(task.held_out)}
    names = [stem + end for stem in [*official.values(), *SAMPLE.values()] for end in (".tsv", ".tsv.gz")]
    found = find_files(path, names, [task.folder, f"glue/{task.folder}", f"GLUE/{task.folder}"])

    def tables(stems: dict[str, str]) -> dict[str, Path]:
        """Those that are there; a plain one before a packed one."""
        both = {split: found.get(f"{stem}.tsv") or found.get(f"{stem}.tsv.gz") for split, stem in stems.items()}
        return {split: file for split, file in both.items() if file is not None}

    whole, sample = tables(official), tables(SAMPLE)
    if len(whole) == len(official):
        return whole, "official", HIDDEN
    if "train" in sample and "train" not in whole:
        is_official = len(whole) == len(task.held_out)
        held_out = whole if is_official else {split: file for split, file in sample.items() if split == "test"}
        if held_out:
            return {"train": sample["train"], **held_out}, "stand-in", STAND_IN.format(test=TESTS[is_official])
        wanted = [f"{stem}.tsv" for _, stem in task.held_out]
        raise missing([f"{' and '.join(wanted)} or {SAMPLE['test']}.tsv"], path, found, f"get a table of {task.folder}")
    get = f"download {task.folder} from https://gluebenchmark.com/tasks and unpack its folder {task.folder}"
    raise missing([f"{stem}.tsv" for stem in official.values()], path, found, get)


def _read(path: Path, task: str) -> Examples:
    rows = read_glue(path, task)
    assert rows.labels is not None  # because it reads labelled tables unless told otherwise
    return Examples.of([tuple(text.encode() for text in texts) for texts in rows.texts], rows.labels.tolist())


def _arrange(pool: Pool) -> Arrangement:
    """Training rows in shuffled order, without the first, which become dev; other tables in their own order."""
    tables = {split: np.flatnonzero(pool.splits == split) for split in dict.fromkeys(pool.splits.tolist())}
    train = tables["train"][shuffled(len(tables["train"]), DEV_SEED)]
    n_dev = max(1, min(len(tables["test"]), len(train) // 10))
    return {"train": train[n_dev:], "dev": train[:n_dev]} | {s: rows for s, rows in tables.items() if s != "train"}


def glue_files(task: str, path: Path | str) -> Source:
    """A task of GLUE as UTF-8 bytes, which ``encode_split`` in ``sentence_pairs`` turns into tokens.

    Nobody but GLUE's server knows the labels of its test tables, and papers report the dev tables. So here ``test``
    is the official dev table, of MNLI the matched one, and ``mismatched`` is a fourth split. What chooses the
    checkpoint, ``dev``, is drawn from the training rows by a recorded seed: as many rows as ``test`` has, but no more
    than a tenth of them. Rows that belong together are not kept together: SST-2's are phrases, many of them parts of
    one another, and several of QNLI's ask about one passage. So ``dev`` is somewhat easier than ``test``: use it for
    choosing, not for reporting.

    Args:
        task: ``sst2``, ``qqp``, ``mnli`` or ``qnli``.
        path: A folder with ``train.tsv`` and ``dev.tsv``, of MNLI with ``dev_matched.tsv`` and
            ``dev_mismatched.tsv``, plain or each packed with gzip; one that has such a folder by GLUE's name of the
            task, as in ``SST-2`` or ``glue/SST-2``; or one of the tables. Where ``train.tsv`` is not there,
            ``train_subset.tsv`` stands in for it, and ``dev_subset.tsv`` for a dev table that is not there either.

    Returns:
        A source named like the task, with one shard per table; or ``sst2-subset`` and the like with origin
        ``stand-in``. ``settings`` holds the checksum of every table, how many rows it has, passed over and empty texts
        (see ``read_glue``), and a note on what the splits are. Token id of a byte = byte + 1.

    Raises:
        SbmtError: If files are missing, a checksum is wrong, or a table is damaged; see
            :func:`~sbmt.experiments.data.glue.read_glue`.

    Source: Wang et al., GLUE (ICLR 2019).

    Cost: every table is read here and again by its shard; memory for the texts of one.
    """
    layout = choose("task", task, GLUE)
    tables, origin, note = _find(layout, Path(path))
    files, rows = {}, {}
    for file in tables.values():
        files[file.name] = checked_sha256(file, f"{layout.folder}/{file.name}")
        table = read_glue(file, task)
        rows[file.name] = {"read": len(table), "skipped": table.n_skipped, "empty_texts": table.n_empty}
    return Source(
        name=task if origin == "official" else f"{task}-subset",
        task=task,
        origin=origin,
        class_names=layout.class_names,
        vocab_size=257,
        first_id=1,
        settings={
            "files": files,
            "rows": rows,
            "splits": {split: file.name for split, file in tables.items()},
            "dev": "as many training rows as test has, at most a tenth",
            "dev_seed": DEV_SEED,
            "note": note + (COPY if COPIES & set(files.values()) else ""),
        },
        shards=tuple(Shard(split, partial(_read, file, task), split) for split, file in tables.items()),
        arrange=_arrange,
    )
