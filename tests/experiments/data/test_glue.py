"""GLUE: its tables as they are, and their text as tokens."""

import gzip
import hashlib
from dataclasses import replace

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
    """Texts, labels as written and labels as read of a table; no text is in two of them."""
    n, written = SIZES[stem], GLUE[task].written
    texts = [(f"é {stem} {i}", f'" {stem} {i * i}')[: len(GLUE[task].texts)] for i in range(n)]
    labels = [i * i % len(written) for i in range(n)]
    return texts, [written[label] for label in labels], labels


@pytest.fixture
def write(tmp_path):
    """Writes tables of a task; returns their folder."""

    def write(task, stems, end=".tsv"):
        for stem in stems:
            texts, labels, _ = rows_of(task, stem)
            content = table(task, texts, labels, DEV_MNLI if stem.startswith("dev_m") else None)
            (tmp_path / f"{stem}{end}").write_bytes(gzip.compress(content) if end.endswith(".gz") else content)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("task", "end", "given", "read", "origin"),
    [
        ("sst2", ".tsv", ("train", "dev"), ("train", "dev"), "official"),
        ("qqp", ".tsv.gz", ("train", "dev"), ("train", "dev"), "official"),
        ("mnli", ".tsv", (*MNLI, *SAMPLE), MNLI, "official"),
        ("mnli", ".tsv.gz", SAMPLE, SAMPLE, "stand-in"),
        ("qnli", ".tsv", (*SAMPLE, "dev"), ("train_subset", "dev"), "stand-in"),
        ("mnli", ".tsv", (*SAMPLE, *MNLI[1:]), ("train_subset", *MNLI[1:]), "stand-in"),
        ("mnli", ".tsv", (*SAMPLE, "dev_matched"), SAMPLE, "stand-in"),  # one of two official dev tables is not enough
    ],
)
def test_tables_become_splits(write, pool_of, any_checksum, task, end, given, read, origin):
    source = glue_files(task, write(task, given, end))
    assert (source.name, source.task) == (task if origin == "official" else f"{task}-subset", task)
    assert source.origin == origin
    note, is_tested_on_sample = source.notes[-1], "dev_subset" in read
    assert ("do not compare" in note) == (origin == "stand-in")
    assert ("a sample of training rows" in note) == is_tested_on_sample
    assert ("test is the official dev table" in note) != is_tested_on_sample
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


REAL = {  # name, rows per label in the order of the labels, and golden: texts and labels of the dev split
    "sst2": ("sst2", [29_780, 37_569], [428, 444], "64185385072ac6c6"),
    "qnli": ("qnli-subset", [4_523, 4_476], [2_702, 2_761], "44b27ed17459ab92"),
    "mnli": ("mnli-subset", [2_958, 2_980, 3_061], [320, 333, 347], "1abbb86582ad0143"),
    "qqp": ("qqp-subset", [5_747, 3_252], [623, 377], "56380b83d6837899"),
}


@pytest.mark.parametrize("task", REAL)
def test_the_real_tables_have_the_known_balance(shared_data, pool_of, task):
    name, train, test, golden = REAL[task]
    source = glue_files(task, shared_data)
    assert (source.name, source.origin) == (name, "official" if name == task else "stand-in")
    for rows in source.settings["rows"].values():
        assert (rows["skipped"], rows["empty_texts"]) == (0, 0)
    pool, documents = pool_of(source)
    arranged = source.arrange(pool)
    n_dev = min(sum(test), sum(train) // 10)
    assert {s: len(rows) for s, rows in arranged.items()} == dict(train=sum(train) - n_dev, dev=n_dev, test=sum(test))
    counts = {s: np.bincount(pool.labels[rows]) for s, rows in arranged.items()}
    assert (counts["train"] + counts["dev"]).tolist() == train and counts["test"].tolist() == test
    digest = hashlib.sha256(b"".join(b"\t".join(documents[row]) + b"\n" for row in arranged["dev"]))
    digest.update(pool.labels[arranged["dev"]].astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == golden


@pytest.mark.parametrize(("task", "dev"), [("mnli", ("dev_matched", "dev_mismatched")), ("qqp", ("dev",))])
def test_real_tables_in_official_layouts_are_read(shared_data, tmp_path, pool_of, task, dev):
    """Untouched rows of all columns, under official names."""
    folder = shared_data / "glue" / GLUE[task].folder
    for stem, name in {"train": "train", **dict.fromkeys(dev, dev[0])}.items():
        content = (folder / f"official_layout_{name}.tsv.gz").read_bytes()
        (tmp_path / f"{stem}.tsv").write_bytes(gzip.decompress(content))
    pool, documents = pool_of(glue_files(task, tmp_path))
    assert np.bincount(pool.labels).tolist() == [80 * (1 + len(dev))] * len(GLUE[task].class_names)
    assert all(text.decode() for pair in documents for text in pair)


TRAPS = [  # twelve, each in the first text of a row
    'a stray " quote',
    '"quoted twice"',
    '"',
    "next line \u0085, line separator \u2028, form feed \x0c, vertical tab \x0b",
    "a carriage\rreturn",
    " blanks at both ends ",
    "\ufeffa mark of byte order",
    "é 漢 🎬",
    "",
    "   ",
    "NA",
    "<s> </s>",
]


@pytest.fixture
def write_table(tmp_path):
    """Writes a table; returns its path."""

    def write_table(content, name="train.tsv"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write_table


def traps_of(task, n=12):
    """Texts and labels in turn."""
    written = GLUE[task].written
    pairs = [(TRAPS[i % len(TRAPS)], f"second {i}")[: len(GLUE[task].texts)] for i in range(n)]
    return pairs, [written[i % len(written)] for i in range(n)]


@pytest.mark.parametrize("task", GLUE)
def test_texts_are_read_as_they_are_written(write_table, task):
    texts, labels = traps_of(task)
    content = table(task, texts, labels)
    editors = (content.replace(b"\n", b"\r\n"), content[:-1], b"\xef\xbb\xbf" + content)  # change nothing
    for written in (content, *editors):
        rows = read_glue(write_table(written), task)
        assert rows.texts == tuple(texts) and len(rows) == len(TRAPS)
        n_classes = len(GLUE[task].class_names)
        assert rows.labels.dtype == np.int64 and rows.labels.tolist() == [i % n_classes for i in range(len(TRAPS))]
        assert (rows.n_skipped, rows.n_empty) == (0, 2)
        assert rows.index == tuple(str(i) for i in range(len(TRAPS)))


def test_rows_that_are_too_short_are_counted(write_table):
    """Such as QQP's whose question was broken by a line feed; rows beside them stay."""
    broken = b'1\t2\t3\t"How do I\n"\tWas it so?\t0\n\n'
    header, *lines = table("qqp", [("a", "b"), ("c", "d")], ["0", "1"]).splitlines(keepends=True)
    rows = read_glue(write_table(header + lines[0] + broken + lines[1]), "qqp")
    assert (rows.texts, rows.labels.tolist()) == ((("a", "b"), ("c", "d")), [0, 1])
    assert rows.n_skipped == 3 and len(rows.index) == 2
    rows = read_glue(write_table(b"sentence\tlabel\ngood\t1\nshort\nbad\t0\n"), "sst2")  # without numbers
    assert (rows.index, rows.n_skipped) == (("0", "2"), 1)


def test_rows_without_an_agreed_label_are_counted(write_table):
    texts, labels = traps_of("mnli", 6)
    labels[1] = labels[4] = "-"
    rows = read_glue(write_table(table("mnli", texts, labels)), "mnli")
    assert rows.texts == tuple(texts[i] for i in (0, 2, 3, 5))
    assert (rows.labels.tolist(), rows.n_skipped) == ([0, 2, 0, 2], 2)


@pytest.mark.parametrize("task", GLUE)
def test_tables_without_labels(write_table, task):
    texts, labels = traps_of(task)
    unlabelled = write_table(table(task, texts, None), "test.tsv")
    rows = read_glue(unlabelled, task, is_labelled=False)
    assert rows.texts == tuple(texts) and rows.labels is None
    assert rows.index == tuple(str(i) for i in range(len(TRAPS)))
    with pytest.raises(SbmtError, match=f"columns .*{GLUE[task].label}.*test.tsv.*sbmt predict"):
        read_glue(unlabelled, task)
    assert read_glue(write_table(table(task, texts, labels)), task, is_labelled=False).texts == rows.texts


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "columns sentence, label in line 1 of .*, got an empty"),
        (b"it 's good\t1\n", "columns sentence, label in line 1 of .*got .it 's good, 1"),
        (b"sentence\tlabel\nshort\n\n", "got none, and 2 that are too short"),
        (b"sentence\tlabel\ngood\t1\ngood\tbad\t1\n", "2 columns in .*train.tsv, line 3, .*, got 3"),
        (b"sentence\tlabel\ngood\t1\nb\xe9b\xe9\t0\n", "UTF-8 in .*train.tsv, line 3, got .*xe9b"),
        (b"sentence\tlabel\ngood\t2\n", "one of the labels 0, 1 in .*train.tsv, line 2, got '2': correct"),
        (b"sentence\tlabel\ngood\t1\nba", "2 columns in .*train.tsv, line 3, .*and a line feed, got 1"),
    ],
)
def test_what_is_no_table_of_the_task_is_refused(write_table, content, message):
    with pytest.raises(SbmtError, match=message):
        read_glue(write_table(content), "sst2")


pytest.importorskip("tokenizers")  # an extra

WORDS = ["the", "film", "is", "good", "naïve", "漢字", '"quoted"', "<s>", "</s>", "  ", "was", "not", "seen\u0085", ""]


def sentence(rng, n):
    return " ".join(WORDS[i] for i in rng.integers(0, len(WORDS), n).tolist())


@pytest.fixture(scope="module")
def tokenizer():
    rng = np.random.default_rng(0)
    return train_tokenizer([sentence(rng, 12) for _ in range(200)], 300)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Sentences and pairs of up to 40 words, of training 90 and of every dev table 12."""
    folder = tmp_path_factory.mktemp("glue")
    made = {}
    for task, stems in (("sst2", ("train", "dev")), ("mnli", ("train", "dev_matched", "dev_mismatched"))):
        (folder / task).mkdir()
        for seed, stem in enumerate(stems):
            rng = np.random.default_rng([1, seed])
            n = 90 if stem == "train" else 12
            pairs = [tuple(sentence(rng, k) for k in rng.integers(0, 40, len(GLUE[task].texts))) for _ in range(n)]
            labels = [GLUE[task].written[i] for i in rng.integers(0, len(GLUE[task].written), n)]
            columns = DEV_MNLI if stem.startswith("dev_m") else None
            (folder / task / f"{stem}.tsv").write_bytes(table(task, pairs, labels, columns))
        made[task] = prepare(glue_files(task, folder / task), folder / "cache")
    return made


def naive(split, tokenizer, length):
    """Ids of every example, packed one at a time, and the number of those that were cut."""
    examples, n_cut = [], 0
    for example in range(len(split)):
        first, *second = ([bytes(document).decode()] for document in split.documents(example))
        (ids,), is_cut = tokenizer.pack(first, *(second or [None]), length)
        examples.append(ids.tolist())
        n_cut += is_cut
    return examples, n_cut


@pytest.mark.parametrize("task, length, chunk", [("sst2", 9, 7), ("mnli", 9, 1), ("mnli", 40, 4096)])
def test_examples_are_packed_in_their_order(prepared, tokenizer, monkeypatch, task, length, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    for name, split in prepared[task].splits.items():
        encoded, n_cut = encode_split(split, tokenizer, length)
        wanted, wanted_cut = naive(split, tokenizer, length)
        documents = [encoded.documents(example) for example in range(len(encoded))]
        assert [[ids.tolist() for ids in row] for row in documents] == [[ids] for ids in wanted], name
        assert n_cut == wanted_cut and encoded.labels.tolist() == split.labels.tolist()
        assert encoded.extras is split.extras
        assert encoded.symbols.dtype == np.uint16
        lengths = encoded.lengths[encoded.indices].sum(1).tolist()
        assert lengths == [len(ids) for ids in wanted] and max(lengths) <= length


@pytest.mark.bad_input
def test_what_is_no_text_is_refused(prepared, tokenizer):
    split = prepared["mnli"].splits["test"]
    with pytest.raises(SbmtError, match="documents in UTF-8"):
        encode_split(replace(split, symbols=np.full_like(split.symbols, 0xFF)), tokenizer, 20)
    with pytest.raises(SbmtError, match="one document or two of bytes, got 1 of uint16"):
        encode_split(encode_split(split, tokenizer, 20)[0], tokenizer, 20)
    with pytest.raises(SbmtError, match="length ≥"):
        encode_split(split, tokenizer, 3)
