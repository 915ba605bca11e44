import gzip

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.glue.files import read_glue
from sbmt.experiments.data.glue.tasks import GLUE
from tests.experiments.data.glue.layout import table

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
def write(tmp_path):
    """Writes a table, packed where its name ends so; returns its path."""

    def write(content, name="train.tsv"):
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return tmp_path / name

    return write


def rows_of(task, n=12):
    """Texts and labels in turn."""
    written = GLUE[task].written
    pairs = [(TRAPS[i % len(TRAPS)], f"second {i}")[: len(GLUE[task].texts)] for i in range(n)]
    return pairs, [written[i % len(written)] for i in range(n)]


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
@pytest.mark.parametrize("task", GLUE)
def test_texts_are_read_as_they_are_written(write, task, name):
    texts, labels = rows_of(task)
    rows = read_glue(write(table(task, texts, labels), name), task)
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
def test_what_editors_do_to_files_changes_nothing(write, task, change):
    texts, labels = rows_of(task)
    plain, changed = (
        read_glue(write(content, name), task)
        for content, name in ((table(task, texts, labels), "a.tsv"), (change(table(task, texts, labels)), "b.tsv"))
    )
    assert changed.texts == plain.texts and changed.labels.tolist() == plain.labels.tolist()
    assert (changed.index, changed.n_skipped) == (plain.index, 0)


def test_columns_are_found_by_name(write):
    content = b"is_duplicate\tquestion2\tx\tquestion1\n1\tsecond\t?\tfirst\n"
    rows = read_glue(write(content), "qqp")
    assert (rows.texts, rows.labels.tolist(), rows.index) == ((("first", "second"),), [1], ("0",))


def test_the_last_gold_label_counts(write):
    """Beside those of single annotators, in any number; and of two with that name the last."""
    header = b"index\tsentence1\tsentence2\tlabel1\tgold_label\tlabel2\tgold_label\n"
    rows = read_glue(write(header + b"7\ta\tb\tneutral\tneutral\tneutral\tcontradiction\n"), "mnli")
    assert (rows.labels.tolist(), rows.index) == ([0], ("7",))


def test_rows_that_are_too_short_are_counted(write):
    """Such as QQP's whose question was broken by a line feed; rows beside them stay."""
    broken = b'1\t2\t3\t"How do I\n"\tWas it so?\t0\n\n'
    header, *lines = table("qqp", [("a", "b"), ("c", "d")], ["0", "1"]).splitlines(keepends=True)
    rows = read_glue(write(header + lines[0] + broken + lines[1]), "qqp")
    assert (rows.texts, rows.labels.tolist()) == ((("a", "b"), ("c", "d")), [0, 1])
    assert rows.n_skipped == 3 and len(rows.index) == 2


def test_rows_without_numbers_are_counted_with_those_that_are_skipped(write):
    rows = read_glue(write(b"sentence\tlabel\ngood\t1\nshort\nbad\t0\n"), "sst2")
    assert (rows.index, rows.n_skipped) == (("0", "2"), 1)


@pytest.mark.parametrize("name", ["train.tsv", "train.tsv.gz"])
def test_a_last_row_that_is_cut_is_no_short_row(write, name):
    content = table("qnli", [("a", "b")] * 3, ["entailment"] * 3)
    for n_bytes in range(12, len(content.splitlines(keepends=True)[-1])):
        with pytest.raises(SbmtError, match=f"4 columns and a line feed in .*{name}, line 4, .*it is cut off"):
            read_glue(write(content[:-n_bytes], name), "qnli")


def test_rows_without_an_agreed_label_are_counted(write):
    texts, labels = rows_of("mnli", 6)
    labels[1] = labels[4] = "-"
    rows = read_glue(write(table("mnli", texts, labels)), "mnli")
    assert rows.texts == tuple(texts[i] for i in (0, 2, 3, 5))
    assert (rows.labels.tolist(), rows.n_skipped) == ([0, 2, 0, 2], 2)


@pytest.mark.parametrize("task", GLUE)
def test_tables_without_labels(write, task):
    texts, labels = rows_of(task)
    unlabelled = write(table(task, texts, None), "test.tsv")
    rows = read_glue(unlabelled, task, is_labelled=False)
    assert rows.texts == tuple(texts) and rows.labels is None
    assert rows.index == tuple(str(i) for i in range(len(TRAPS)))
    with pytest.raises(SbmtError, match=f"columns .*{GLUE[task].label}.*test.tsv.*is_labelled=False"):
        read_glue(unlabelled, task)
    assert read_glue(write(table(task, texts, labels)), task, is_labelled=False).texts == rows.texts


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
def test_a_wrong_label_is_named(write, task, label, allowed, name):
    texts, labels = rows_of(task)
    labels[4] = label
    with pytest.raises(SbmtError) as error:
        read_glue(write(table(task, texts, labels), name), task)
    expected = f"one of the labels {allowed} in "
    assert expected in str(error.value) and f"{name}, line 6, got {label!r}: correct that line" in str(error.value)


def test_a_row_with_too_many_columns_is_named(write):
    content = table("qnli", [("a", "b")] * 3, ["entailment"] * 3) + b"3\ta\ttab in a text\tb\tentailment\n"
    with pytest.raises(SbmtError, match=r"4 columns in .*train.tsv, line 5, as in its line 1, got 5"):
        read_glue(write(content), "qnli")


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
def test_what_is_no_table_of_the_task_is_refused(write, content, message):
    for name in ("train.tsv", "train.tsv.gz"):
        with pytest.raises(SbmtError, match=message):
            read_glue(write(content, name), "sst2")


def test_damaged_or_missing_files_are_refused(write, tmp_path):
    path = write(table("sst2", [("good",)], ["1"]), "train.tsv.gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SbmtError, match="a whole gzip file .*train.tsv.gz"):
        read_glue(path, "sst2")
    with pytest.raises(SbmtError, match="to read .*absent.tsv"):
        read_glue(tmp_path / "absent.tsv", "sst2")


@pytest.mark.bad_input
def test_an_unknown_task_is_refused(tmp_path):
    with pytest.raises(SbmtError, match="task among 'sst2', 'qqp', 'mnli', 'qnli', got 'cola'"):
        read_glue(tmp_path / "train.tsv", "cola")


REAL = [  # rows per label, as counted when the samples were laid out
    ("sst2", "SST-2/train.tsv.gz", [29_780, 37_569]),
    ("sst2", "SST-2/dev.tsv.gz", [428, 444]),
    ("qnli", "QNLI/dev.tsv.gz", [2_702, 2_761]),
    ("qnli", "QNLI/train_subset.tsv.gz", [4_523, 4_476]),
    ("qnli", "QNLI/dev_subset.tsv.gz", [504, 496]),
    ("qnli", "QNLI/official_layout_train.tsv.gz", [80, 80]),
    ("mnli", "MNLI/train_subset.tsv.gz", [2_958, 2_980, 3_061]),
    ("mnli", "MNLI/dev_subset.tsv.gz", [320, 333, 347]),
    ("mnli", "MNLI/official_layout_train.tsv.gz", [80, 80, 80]),
    ("mnli", "MNLI/official_layout_dev_matched.tsv.gz", [80, 80, 80]),
    ("qqp", "QQP/train_subset.tsv.gz", [5_747, 3_252]),
    ("qqp", "QQP/dev_subset.tsv.gz", [623, 377]),
    ("qqp", "QQP/official_layout_train.tsv.gz", [80, 80]),
    ("qqp", "QQP/official_layout_dev.tsv.gz", [80, 80]),
]


@pytest.mark.parametrize(("task", "name", "counts"), REAL)
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
