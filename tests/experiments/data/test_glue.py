"""Tests reading GLUE's tables, and encoding their text as tokens."""

import gzip

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import glue as module
from sbmt.experiments.data.glue import GLUE, encode_split, glue_files, read_glue
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.data.tokenizer import train_tokenizer
from tests.experiments.data.glue_layout import DEV_MNLI, table

SIZES = {"train": 40, "dev": 7, "dev_matched": 7, "dev_mismatched": 5, "train_subset": 30, "dev_subset": 6}
SPLITS = ("train", "test", "mismatched")
SAMPLE = ("train_subset", "dev_subset")
MNLI = ("train", "dev_matched", "dev_mismatched")


def rows_of(task, stem):
    """Returns texts, labels as written and labels as read of a table. No text occurs in two tables."""
    n, written = SIZES[stem], GLUE[task].written
    texts = [(f"é {stem} {i}", f'" {stem} {i * i}')[: len(GLUE[task].texts)] for i in range(n)]
    labels = [i * i % len(written) for i in range(n)]
    return texts, [written[label] for label in labels], labels


def write(folder, task, stems, end):
    """Writes tables of a task, and returns their folder."""
    for stem in stems:
        texts, labels, _ = rows_of(task, stem)
        content = table(task, texts, labels, DEV_MNLI if stem.startswith("dev_m") else None)
        (folder / f"{stem}{end}").write_bytes(gzip.compress(content) if end.endswith(".gz") else content)
    return folder


@pytest.mark.parametrize(
    ("task", "end", "given", "read", "origin"),
    [
        ("sst2", ".tsv", ("train", "dev"), ("train", "dev"), "official"),
        ("qqp", ".tsv.gz", ("train", "dev"), ("train", "dev"), "official"),
        ("mnli", ".tsv", (*MNLI, *SAMPLE), MNLI, "official"),
        ("qnli", ".tsv", (*SAMPLE, "dev"), ("train_subset", "dev"), "stand-in"),
        ("mnli", ".tsv", (*SAMPLE, "dev_matched"), SAMPLE, "stand-in"),  # one of two official dev tables is not enough
    ],
)
def test_tables_become_splits(tmp_path, pool_of, task, end, given, read, origin):
    source = glue_files(task, write(tmp_path, task, given, end))
    assert (source.name, source.task) == (task if origin == "official" else f"{task}-subset", task)
    assert source.origin == origin
    assert ("not comparable" in source.notes[-1]) == (origin == "stand-in")
    assert ("test is the official dev table" in source.notes[-1]) == ("dev_subset" not in read)
    pool, documents = pool_of(source)
    tables = zip(SPLITS, read, strict=False)
    rows = [(split, *row) for split, stem in tables for row in zip(*rows_of(task, stem), strict=True)]
    assert documents == [tuple(text.encode() for text in texts) for _, texts, *_ in rows]
    assert pool.labels.tolist() == [label for *_, label in rows]
    assert pool.splits.tolist() == [split for split, *_ in rows]
    arranged = source.arrange(pool)
    assert list(arranged) == ["train", "dev", *SPLITS[1 : len(read)]]
    n_train = SIZES[read[0]]
    train, dev = arranged["train"].tolist(), arranged["dev"].tolist()
    assert len(dev) == n_train // 10 and sorted(train + dev) == list(range(n_train))
    assert train != sorted(train)
    assert [row for split in SPLITS[1 : len(read)] for row in arranged[split]] == list(range(n_train, len(documents)))


TRAPS = [  # each in the first text of a row
    'a stray " quote',
    "next line \u0085, line separator \u2028, form feed \x0c",
    "a carriage\rreturn",
    " blanks at both ends ",
    "\ufeffé 漢 🎬",
    "",
    "   ",
    "<s> </s>",
]


@pytest.fixture
def read(tmp_path):
    """Writes a table, and reads it."""

    def read(content, task, **options):
        (tmp_path / "train.tsv").write_bytes(content)
        return read_glue(tmp_path / "train.tsv", task, **options)

    return read


def traps_of(task, n=8):
    """Returns texts and labels alternately."""
    written = GLUE[task].written
    pairs = [(TRAPS[i % len(TRAPS)], f"second {i}")[: len(GLUE[task].texts)] for i in range(n)]
    return pairs, [written[i % len(written)] for i in range(n)]


@pytest.mark.parametrize("task", GLUE)
def test_texts_are_read_as_they_are_written(read, task):
    texts, labels = traps_of(task)
    content = table(task, texts, labels)
    for written in (content, content.replace(b"\n", b"\r\n"), content[:-1], b"\xef\xbb\xbf" + content):
        rows = read(written, task)
        assert rows.texts == tuple(texts) and len(rows) == len(TRAPS)
        n_classes = len(GLUE[task].class_names)
        assert rows.labels.dtype == np.int64 and rows.labels.tolist() == [i % n_classes for i in range(len(TRAPS))]
        assert (rows.n_skipped, rows.n_empty) == (0, 2)
        assert rows.index == tuple(str(i) for i in range(len(TRAPS)))


def test_rows_that_are_too_short_or_without_an_agreed_label_are_counted(read):
    """Tests rows such as QQP's, whose questions are split by a line feed. Rows around them are kept."""
    broken = b'1\t2\t3\t"How do I\n"\tWas it so?\t0\n\n'
    header, *lines = table("qqp", [("a", "b"), ("c", "d")], ["0", "1"]).splitlines(keepends=True)
    rows = read(header + lines[0] + broken + lines[1], "qqp")
    assert (rows.texts, rows.labels.tolist()) == ((("a", "b"), ("c", "d")), [0, 1])
    assert rows.n_skipped == 3 and len(rows.index) == 2
    texts, labels = traps_of("mnli", 6)
    rows = read(table("mnli", texts, [*labels[:5], "-"]), "mnli")
    assert rows.texts == tuple(texts[:5]) and (rows.labels.tolist(), rows.n_skipped) == ([0, 1, 2, 0, 1], 1)


def test_tables_without_labels(read):
    texts, _ = traps_of("qqp")
    unlabelled = table("qqp", texts, None)
    rows = read(unlabelled, "qqp", is_labelled=False)
    assert rows.texts == tuple(texts) and rows.labels is None and rows.index == tuple("01234567")
    with pytest.raises(SbmtError, match="columns .*is_duplicate.*sbmt predict"):
        read(unlabelled, "qqp")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "columns sentence, label in line 1"),
        (b"sentence\tlabel\nshort\n\n", "got only 2 rows with too few columns"),
        (b"sentence\tlabel\ngood\t1\ngood\tbad\t1\n", "2 columns, as in line 1, and .*train.tsv, line 3, got 3"),
        (b"sentence\tlabel\ngood\t1\nb\xe9b\xe9\t0\n", "UTF-8 text in .*train.tsv, line 3"),
        (b"sentence\tlabel\ngood\t2\n", "one of the labels 0, 1 in .*train.tsv, line 2, got '2': correct"),
    ],
)
def test_what_is_no_table_of_the_task_is_refused(read, content, message):
    with pytest.raises(SbmtError, match=message):
        read(content, "sst2")


TOKENIZER = train_tokenizer([" ".join(TRAPS)] * 9, 290)


@pytest.mark.parametrize("task", ["sst2", "qqp"])
def test_examples_are_packed_in_their_order(tmp_path, monkeypatch, task):
    """Packing many texts gives the same result as packing one at a time."""
    monkeypatch.setattr(module, "CHUNK", 5)
    rows, labels = traps_of(task)
    for stem, order in (("train", -1), ("dev", 1)):
        (tmp_path / f"{stem}.tsv").write_bytes(table(task, rows[::order], labels[::order]))
    split = prepare(glue_files(task, tmp_path), tmp_path / "cache").splits["test"]
    encoded, n_cut = encode_split(split, TOKENIZER, 12)
    packed = [TOKENIZER.pack([row[0]], [row[1]] if len(row) == 2 else None, 12) for row in rows]
    documents = [ids.tolist() for example in range(len(rows)) for ids in encoded.documents(example)]
    assert documents == [ids.tolist() for (ids,), _ in packed]
    assert n_cut == sum(is_cut for _, is_cut in packed) > 0 and encoded.labels.tolist() == split.labels.tolist()
