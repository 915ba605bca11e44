import hashlib
import os
import random

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Pool
from sbmt.experiments.data.text import ARCHIVE, PAIR, text_files

TRAPS = [
    b'quoted "twice" and "once',
    "next line \u0085 and line separator \u2028 here".encode(),
    b"a\ttab",
    b"ends of lines\r\nand\nand\r",
    b"\xef\xbb\xbfa mark of byte order",
    b"",
    "é 漢 🎬".encode(),
    b"Good.<br /><br />Bad.",
    b"long " * 4000,
]


def reviews(split):
    """(name, content) of both classes; numbers so that text order is not their order."""
    rows = [(f"aclImdb/{split}/neg/{i}_{1 + i % 4}.txt", TRAPS[i % 9]) for i in range(12)]
    rows += [(f"aclImdb/{split}/pos/{i}_{7 + i % 4}.txt", b"good %d" % i) for i in range(12)]
    return rows


ALL = reviews("train") + reviews("test")


def unpacked(folder):
    for name, content in ALL:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def lay_out(layout, folder, write_tar):
    """Writes the same reviews in one of the ways in which they may come; returns the path to give."""
    members = random.Random(layout).sample(ALL, len(ALL))
    match layout:
        case "archive":
            write_tar(folder / ARCHIVE, members)
        case "another name":
            return write_tar(folder / "mine.tar", [(f"./{name}", content) for name, content in members])
        case "unpacked":
            return unpacked(folder) / "aclImdb"
        case "pair" | "one of it":
            for split, name in PAIR.items():
                write_tar(folder / name, [row for row in members if f"/{split}/" in row[0]])
    return folder / PAIR["test"] if layout == "one of it" else folder


@pytest.mark.parametrize("layout", ["archive", "another name", "unpacked", "pair", "one of it"])
def test_every_layout_gives_the_same_examples(tmp_path, write_tar, pool_of, any_checksum, layout):
    source = text_files(lay_out(layout, tmp_path, write_tar))
    pool, documents = pool_of(source)
    assert documents == [(content,) for _, content in ALL]  # bytes as they are, numbers in order, negative ones first
    assert pool.labels.tolist() == ([0] * 12 + [1] * 12) * 2
    assert pool.extras["rating"].tolist() == [int(name[:-4].split("_")[-1]) for name, _ in ALL]
    assert pool.splits.tolist() == ["train"] * 24 + ["test"] * 24
    assert bool(source.notes) == (layout in ("pair", "one of it"))
    if layout == "archive":
        checksum = hashlib.sha256((tmp_path / ARCHIVE).read_bytes()).hexdigest()
        assert source.settings["files"] == {ARCHIVE: checksum}


def test_a_tenth_of_the_training_reviews_is_held_out(tmp_path, write_tar):
    source = text_files(write_tar(tmp_path / "mine.tar", ALL))
    splits = np.array(["train"] * 25000 + ["test"] * 25000)
    nothing = np.zeros(50000, dtype=np.int64)
    splits_of = source.arrange(Pool(nothing, nothing[:, None], splits, {}))
    assert {split: len(rows) for split, rows in splits_of.items()} == {"train": 22500, "dev": 2500, "test": 25000}
    training = np.concatenate([splits_of["train"], splits_of["dev"]])
    assert np.array_equal(np.sort(training), np.arange(25000))
    assert np.array_equal(np.sort(splits_of["test"]), np.arange(25000, 50000))
    assert splits_of["dev"][:5].tolist() == [19086, 18897, 8553, 14924, 2405]
    assert abs((splits_of["test"][:4000] < 37500).mean() - 0.5) < 0.05  # its first examples are a fair sample


@pytest.mark.parametrize(
    "name, message",
    [
        ("train/neg/5_7.txt", "rated 1 to 4 in neg"),
        ("train/pos/5_0.txt", "rated 1 to 4 in neg"),
        ("test/neg/5_1.html", "named <id>_<rating>"),
        ("test/neg/٣_1.txt", "named <id>_<rating>"),
        ("test/neg/05_1.txt", "one review per class and number for test"),
    ],
)
def test_odd_names_are_refused(tmp_path, name, message):
    path = unpacked(tmp_path)
    (path / "aclImdb" / name).write_text("")
    source = text_files(path)
    with pytest.raises(SbmtError, match=message):
        list(source.parts())


def test_a_pipe_among_the_reviews_is_refused(tmp_path):
    """Whoever reads it would wait for ever."""
    os.mkfifo(unpacked(tmp_path) / "aclImdb" / "train" / "neg" / "99_1.txt")
    with pytest.raises(SbmtError, match="a regular file .*99_1.txt, got a folder, a device or a pipe"):
        text_files(tmp_path)


def test_the_real_reviews_have_the_known_statistics(shared_data):
    """And golden, SHA-256 of their symbols."""
    examples = dict(text_files(shared_data).parts())["test"]
    lengths = examples.lengths[:, 0]
    assert np.bincount(examples.labels).tolist() == [12500, 12500]
    assert (int(np.median(lengths)), round(lengths.mean()), lengths.max()) == (963, 1294, 12988)
    ratings = examples.extras["rating"]
    assert set(ratings[:12500].tolist()) == {1, 2, 3, 4} and set(ratings[12500:].tolist()) == {7, 8, 9, 10}
    whole = examples.symbols.tobytes()
    assert len(whole) == 32_346_699 and hashlib.sha256(whole).hexdigest()[:16] == "0710b26fbf18e6b8"
    assert b"\r" not in whole and b"\n" not in whole and b"<br />" in whole
    assert whole.decode().count("\u0085") > 100  # all of it is UTF-8
