import gzip
import hashlib

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.glue import files as module
from sbmt.experiments.data.glue.files import glue_files, read_glue
from sbmt.experiments.data.glue.tasks import GLUE
from tests.experiments.data.glue.layout import DEV_MNLI, table

STEMS = {task: ("train", "dev") for task in GLUE} | {"mnli": ("train", "dev_matched", "dev_mismatched")}
SIZES = {"train": 40, "dev": 7, "dev_matched": 7, "dev_mismatched": 5, "train_subset": 30, "dev_subset": 6}
SAMPLE = ("train_subset", "dev_subset")


def rows_of(task, stem):
    """Texts, labels as written and labels as read of a table; no text is in two of them."""
    n, written = SIZES[stem], GLUE[task].written
    texts = [(f"é {stem} {i}", f'" {stem} {i * i}')[: len(GLUE[task].texts)] for i in range(n)]
    labels = [i * i % len(written) for i in range(n)]
    return texts, [written[label] for label in labels], labels


def encoded(task, *stems):
    return [tuple(text.encode() for text in row) for stem in stems for row in rows_of(task, stem)[0]]


@pytest.fixture
def write(tmp_path):
    """Writes tables of a task; returns the folder above."""

    def write(task, stems, *, folder="", end=".tsv"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for stem in stems:
            texts, labels, _ = rows_of(task, stem)
            content = table(task, texts, labels, DEV_MNLI if stem.startswith("dev_m") else None)
            packed = gzip.compress(content) if end.endswith(".gz") else content
            (tmp_path / folder / f"{stem}{end}").write_bytes(packed)
        return tmp_path

    return write


@pytest.mark.parametrize("end", [".tsv", ".tsv.gz"])
@pytest.mark.parametrize("folder", ["", "{}", "glue/{}", "GLUE/{}"])
@pytest.mark.parametrize("task", GLUE)
def test_official_tables_are_read(write, pool_of, task, folder, end):
    source = glue_files(task, write(task, STEMS[task], folder=folder.format(GLUE[task].folder), end=end))
    assert (source.name, source.task, source.origin) == (task, task, "official")
    assert (source.class_names, source.vocab_size, source.first_id) == (GLUE[task].class_names, 257, 1)
    pool, documents = pool_of(source)
    assert documents == encoded(task, *STEMS[task])
    assert pool.labels.tolist() == [label for stem in STEMS[task] for label in rows_of(task, stem)[2]]
    splits = ("train", "test", "mismatched")
    wanted = [split for split, stem in zip(splits, STEMS[task], strict=False) for _ in range(SIZES[stem])]
    assert pool.splits.tolist() == wanted


@pytest.mark.parametrize(("task", "n_held_out"), [("sst2", 4), ("mnli", 4)])
def test_dev_is_held_out_of_the_training_rows(write, pool_of, task, n_held_out):
    source = glue_files(task, write(task, STEMS[task]))
    arranged = source.arrange(pool_of(source)[0])
    assert list(arranged) == ["train", "dev", "test"] + ["mismatched"] * (task == "mnli")
    train, dev = arranged["train"].tolist(), arranged["dev"].tolist()
    assert len(dev) == n_held_out and sorted(train + dev) == list(range(40))  # at most a tenth
    assert train != sorted(train) and dev != sorted(dev)
    assert arranged["test"].tolist() == list(range(40, 47))
    if task == "mnli":
        assert arranged["mismatched"].tolist() == list(range(47, 52))
    again = source.arrange(pool_of(source)[0])
    assert all(again[split].tolist() == rows.tolist() for split, rows in arranged.items())


def test_dev_is_no_larger_than_test(write, pool_of, monkeypatch):
    monkeypatch.setitem(SIZES, "train", 200)
    source = glue_files("sst2", write("sst2", STEMS["sst2"]))
    assert {s: len(rows) for s, rows in source.arrange(pool_of(source)[0]).items()} == dict(train=193, dev=7, test=7)
    monkeypatch.setitem(SIZES, "train", 3)
    source = glue_files("sst2", write("sst2", STEMS["sst2"]))
    assert {s: len(rows) for s, rows in source.arrange(pool_of(source)[0]).items()} == dict(train=2, dev=1, test=7)


@pytest.mark.parametrize("task", GLUE)
def test_a_sample_stands_in_for_missing_tables(write, pool_of, task, any_checksum):
    source = glue_files(task, write(task, SAMPLE, folder=GLUE[task].folder, end=".tsv.gz"))
    assert (source.name, source.task, source.origin) == (f"{task}-subset", task, "stand-in")
    assert "do not compare" in source.settings["note"] and "a sample of training rows" in source.settings["note"]
    pool, documents = pool_of(source)
    assert documents == encoded(task, *SAMPLE)
    assert {s: len(rows) for s, rows in source.arrange(pool).items()} == dict(train=27, dev=3, test=6)


@pytest.mark.parametrize("task", ["qnli", "mnli"])
def test_a_sample_is_tested_on_the_official_tables_where_they_are(write, pool_of, task):
    write(task, SAMPLE)
    source = glue_files(task, write(task, STEMS[task][1:]))
    assert (source.name, source.origin) == (f"{task}-subset", "stand-in")
    assert "test is the official dev table" in source.settings["note"]
    pool, documents = pool_of(source)
    assert documents == encoded(task, "train_subset", *STEMS[task][1:])
    assert list(source.arrange(pool)) == ["train", "dev", "test"] + ["mismatched"] * (task == "mnli")


def test_one_of_two_official_dev_tables_is_not_enough(write, pool_of):
    write("mnli", SAMPLE)
    _, documents = pool_of(glue_files("mnli", write("mnli", ["dev_matched"])))
    assert documents == encoded("mnli", *SAMPLE)


def test_official_tables_come_first_and_plain_ones_before_packed_ones(write, tmp_path):
    write("sst2", SAMPLE)
    write("sst2", STEMS["sst2"], end=".tsv.gz")
    assert set(glue_files("sst2", tmp_path).settings["files"]) == {"train.tsv.gz", "dev.tsv.gz"}
    write("sst2", ["dev"])
    source = glue_files("sst2", str(tmp_path / "dev.tsv"))  # one of them brings the others
    assert source.settings["splits"] == {"train": "train.tsv.gz", "test": "dev.tsv"}


def test_settings_say_what_was_read(write, tmp_path):
    write("qqp", STEMS["qqp"])
    path = tmp_path / "train.tsv"
    path.write_bytes(path.read_bytes() + b"too\tshort\n" + b"0\t1\t2\t\t \t1\n")
    source = glue_files("qqp", tmp_path)
    assert source.settings == {
        "files": {f"{s}.tsv": hashlib.sha256((tmp_path / f"{s}.tsv").read_bytes()).hexdigest() for s in STEMS["qqp"]},
        "rows": {
            "train.tsv": {"read": 41, "skipped": 1, "empty_texts": 2},
            "dev.tsv": {"read": 7, "skipped": 0, "empty_texts": 0},
        },
        "splits": {"train": "train.tsv", "test": "dev.tsv"},
        "dev": "as many training rows as test has, at most a tenth",
        "dev_seed": 0,
        "note": module.HIDDEN,
    }
    assert source.shards[0].make().lengths[-1].tolist() == [0, 1]  # empty texts stay


@pytest.mark.parametrize(
    ("stems", "message"),
    [
        ([], "expected train.tsv, dev_matched.tsv, dev_mismatched.tsv in .*got none of them.*gluebenchmark.com"),
        (["train"], "got only train.tsv"),
        (["train", "dev_matched"], "expected train.tsv, dev_matched.tsv, dev_mismatched.tsv in .*got only dev_m"),
        (["train", *SAMPLE], "got only dev_subset.tsv, train.tsv, train_subset.tsv"),
        (["dev_matched", "dev_mismatched"], "expected train.tsv, .*got only dev_matched.tsv, dev_mismatched.tsv"),
        (["train_subset"], "expected dev_matched.tsv and dev_mismatched.tsv or dev_subset.tsv in .*got only train_sub"),
    ],
)
def test_missing_tables_are_told(write, stems, message):
    with pytest.raises(SbmtError, match=message):
        glue_files("mnli", write("mnli", stems))


def test_tables_of_another_task_are_refused(write):
    with pytest.raises(SbmtError, match="columns question, sentence, label in line 1 of .*sst2.*|got sentence, label"):
        glue_files("qnli", write("sst2", STEMS["sst2"]))


def test_a_sample_with_other_content_is_refused(write):
    with pytest.raises(SbmtError, match="expected sha256 9ce136c2.*train_subset.tsv.gz"):
        glue_files("qnli", write("qnli", SAMPLE, end=".tsv.gz"))


@pytest.mark.bad_input
def test_an_unknown_task_is_refused(tmp_path):
    for read in (lambda: glue_files("cola", tmp_path), lambda: read_glue(tmp_path / "train.tsv", "cola")):
        with pytest.raises(SbmtError, match="task among 'sst2', 'qqp', 'mnli', 'qnli', got 'cola'"):
            read()


REAL = {  # origin, and rows per label in the order of the labels
    "sst2": ("sst2", "official", [29_780, 37_569], [428, 444]),
    "qnli": ("qnli-subset", "stand-in", [4_523, 4_476], [2_702, 2_761]),
    "mnli": ("mnli-subset", "stand-in", [2_958, 2_980, 3_061], [320, 333, 347]),
    "qqp": ("qqp-subset", "stand-in", [5_747, 3_252], [623, 377]),
}
GOLDEN = {
    "sst2": "64185385072ac6c6",
    "qnli": "44b27ed17459ab92",
    "mnli": "1abbb86582ad0143",
    "qqp": "56380b83d6837899",
}


@pytest.mark.parametrize("task", REAL)
def test_the_real_tables_have_the_known_balance(shared_data, pool_of, task):
    """And golden: texts and labels of the dev split, which pins down the reading and the drawing."""
    name, origin, train, test = REAL[task]
    source = glue_files(task, shared_data)
    assert (source.name, source.origin) == (name, origin)
    assert (module.COPY in source.settings["note"]) == (task in ("sst2", "qnli"))
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
    assert digest.hexdigest()[:16] == GOLDEN[task]


def test_real_tables_in_official_layouts_are_read(shared_data, tmp_path, pool_of):
    """Untouched rows of all columns, under official names."""
    for task, dev in (("mnli", "dev_matched"), ("qqp", "dev")):
        folder = shared_data / "glue" / GLUE[task].folder
        place = tmp_path / GLUE[task].folder
        place.mkdir()
        tables = {"train": "official_layout_train", dev: f"official_layout_{dev}"}
        tables |= {"dev_mismatched": f"official_layout_{dev}"} if task == "mnli" else {}
        for stem, name in tables.items():
            (place / f"{stem}.tsv").write_bytes(gzip.decompress((folder / f"{name}.tsv.gz").read_bytes()))
        pool, documents = pool_of(glue_files(task, tmp_path))
        n_classes = len(GLUE[task].class_names)
        assert np.bincount(pool.labels).tolist() == [80 * len(tables)] * n_classes
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
    """Writes a table, packed where its name ends so; returns its path."""

    def write_table(content, name="train.tsv"):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return write_table


def traps_of(task, n=12):
    """Texts and labels in turn."""
    written = GLUE[task].written
    pairs = [(TRAPS[i % len(TRAPS)], f"second {i}")[: len(GLUE[task].texts)] for i in range(n)]
    return pairs, [written[i % len(written)] for i in range(n)]


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
@pytest.mark.parametrize("task", GLUE)
def test_texts_are_read_as_they_are_written(write_table, task, name):
    texts, labels = traps_of(task)
    rows = read_glue(write_table(table(task, texts, labels), name), task)
    assert rows.texts == tuple(texts) and len(rows) == len(TRAPS)
    n_classes = len(GLUE[task].class_names)
    assert rows.labels.dtype == np.int64 and rows.labels.tolist() == [i % n_classes for i in range(len(TRAPS))]
    assert (rows.n_skipped, rows.n_empty) == (0, 2)
    assert rows.index == tuple(str(i) for i in range(len(TRAPS)))


def test_labels_mean_what_the_benchmark_says():
    assert {name: task.class_names for name, task in GLUE.items()} == {
        "sst2": ("negative", "positive"),
        "qqp": ("different", "duplicate"),
        "mnli": ("contradiction", "neutral", "entailment"),
        "qnli": ("entailment", "not_entailment"),
    }
    assert {name: task.folder for name, task in GLUE.items()} == dict(sst2="SST-2", qqp="QQP", mnli="MNLI", qnli="QNLI")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.replace(b"\n", b"\r\n"),
        lambda content: content[:-1],  # the last line is not ended
        lambda content: b"\xef\xbb\xbf" + content,
    ],
    ids=["carriage returns", "no end", "mark of byte order"],
)
@pytest.mark.parametrize("task", GLUE)
def test_what_editors_do_to_files_changes_nothing(write_table, task, change):
    texts, labels = traps_of(task)
    plain, changed = (
        read_glue(write_table(content, name), task)
        for content, name in ((table(task, texts, labels), "a.tsv"), (change(table(task, texts, labels)), "b.tsv"))
    )
    assert changed.texts == plain.texts and changed.labels.tolist() == plain.labels.tolist()
    assert (changed.index, changed.n_skipped) == (plain.index, 0)


def test_columns_are_found_by_name(write_table):
    content = b"is_duplicate\tquestion2\tx\tquestion1\n1\tsecond\t?\tfirst\n"
    rows = read_glue(write_table(content), "qqp")
    assert (rows.texts, rows.labels.tolist(), rows.index) == ((("first", "second"),), [1], ("0",))


def test_the_last_gold_label_counts(write_table):
    """Beside those of single annotators, in any number; and of two with that name the last."""
    header = b"index\tsentence1\tsentence2\tlabel1\tgold_label\tlabel2\tgold_label\n"
    rows = read_glue(write_table(header + b"7\ta\tb\tneutral\tneutral\tneutral\tcontradiction\n"), "mnli")
    assert (rows.labels.tolist(), rows.index) == ([0], ("7",))


def test_rows_that_are_too_short_are_counted(write_table):
    """Such as QQP's whose question was broken by a line feed; rows beside them stay."""
    broken = b'1\t2\t3\t"How do I\n"\tWas it so?\t0\n\n'
    header, *lines = table("qqp", [("a", "b"), ("c", "d")], ["0", "1"]).splitlines(keepends=True)
    rows = read_glue(write_table(header + lines[0] + broken + lines[1]), "qqp")
    assert (rows.texts, rows.labels.tolist()) == ((("a", "b"), ("c", "d")), [0, 1])
    assert rows.n_skipped == 3 and len(rows.index) == 2


def test_rows_without_numbers_are_counted_with_those_that_are_skipped(write_table):
    rows = read_glue(write_table(b"sentence\tlabel\ngood\t1\nshort\nbad\t0\n"), "sst2")
    assert (rows.index, rows.n_skipped) == (("0", "2"), 1)


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
def test_a_last_row_that_is_cut_is_no_short_row(write_table, name):
    content = table("qnli", [("a", "b")] * 3, ["entailment"] * 3)
    for n_bytes in range(12, len(content.splitlines(keepends=True)[-1])):
        with pytest.raises(SbmtError, match=f"4 columns and a line feed in .*{name}, line 4, .*it is cut off"):
            read_glue(write_table(content[:-n_bytes], name), "qnli")


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
    with pytest.raises(SbmtError, match=f"columns .*{GLUE[task].label}.*test.tsv.*is_labelled=False"):
        read_glue(unlabelled, task)
    assert read_glue(write_table(table(task, texts, labels)), task, is_labelled=False).texts == rows.texts


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
@pytest.mark.parametrize(
    ("task", "label", "allowed"),
    [
        ("sst2", "2", "0, 1"),
        ("sst2", "", "0, 1"),
        ("qqp", "1.0", "0, 1"),
        ("qqp", "-", "0, 1"),
        ("mnli", "Neutral", "contradiction, neutral, entailment"),
        ("mnli", "hidden", "contradiction, neutral, entailment"),
        ("qnli", "not entailment", "entailment, not_entailment"),
        ("qnli", "entailment ", "entailment, not_entailment"),
    ],
)
def test_a_wrong_label_is_named(write_table, task, label, allowed, name):
    texts, labels = traps_of(task)
    labels[4] = label
    with pytest.raises(SbmtError) as error:
        read_glue(write_table(table(task, texts, labels), name), task)
    expected = f"one of the labels {allowed} in "
    assert expected in str(error.value) and f"{name}, line 6, got {label!r}: correct that line" in str(error.value)


def test_a_row_with_too_many_columns_is_named(write_table):
    content = table("qnli", [("a", "b")] * 3, ["entailment"] * 3) + b"3\ta\ttab in a text\tb\tentailment\n"
    with pytest.raises(SbmtError, match=r"4 columns in .*train.tsv, line 5, as in its line 1, got 5"):
        read_glue(write_table(content), "qnli")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "rows of SST-2 in .*got an empty file"),
        (b"\xef\xbb\xbf", "got an empty line"),
        (b"\n", "columns sentence, label in line 1 of .*, got an empty line"),
        (b"it 's good\t1\n", "columns sentence, label in line 1 of .*got it 's good, 1"),
        (b"sentence,label\ngood,1\n", "got sentence,label"),
        (b"question1\tquestion2\tis_duplicate\n", "got question1, question2, is_duplicate"),
        (b"sentence\tlabel\n", "rows of SST-2 in .*got none, and 0 that are"),
        (b"sentence\tlabel\nshort\n\n", "got none, and 2 that are too short"),
        (b"sentence\tlabel\ngood\t1\nb\xe9b\xe9\t0\n", "UTF-8 in .*train.tsv(.gz)?, line 3, got .*xe9b"),
        (b"sent\xff\tlabel\n", "UTF-8 in .*train.tsv(.gz)?, line 1, got"),
    ],
)
def test_what_is_no_table_of_the_task_is_refused(write_table, content, message):
    for name in ("train.tsv", "train.tsv.gz"):
        with pytest.raises(SbmtError, match=message):
            read_glue(write_table(content, name), "sst2")


def test_damaged_or_missing_files_are_refused(write_table, tmp_path):
    path = write_table(table("sst2", [("good",)], ["1"]), "train.tsv.gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SbmtError, match="a whole gzip file .*train.tsv.gz"):
        read_glue(path, "sst2")
    with pytest.raises(SbmtError, match="to read .*absent.tsv"):
        read_glue(tmp_path / "absent.tsv", "sst2")


REAL_TABLES = [  # rows per label of those that no source reads
    ("qnli", "QNLI/dev_subset.tsv.gz", [504, 496]),
    ("qnli", "QNLI/official_layout_train.tsv.gz", [80, 80]),
]


@pytest.mark.parametrize(("task", "name", "counts"), REAL_TABLES)
def test_real_tables_have_the_known_balance(shared_data, task, name, counts):
    rows = read_glue(shared_data / "glue" / name, task)
    assert np.bincount(rows.labels).tolist() == counts
    assert (len(rows), rows.n_skipped, rows.n_empty) == (sum(counts), 0, 0)


def test_real_tables_hold_stray_quotes_and_final_blanks(shared_data):
    questions = read_glue(shared_data / "glue/QNLI/dev.tsv.gz", "qnli")
    assert sum('"' in "\t".join(texts) for texts in questions.texts) == 606
    assert questions.index == tuple(str(i) for i in range(5_463))
    phrases = read_glue(shared_data / "glue/SST-2/train.tsv.gz", "sst2")
    assert all(text.endswith(" ") for (text,) in phrases.texts)
