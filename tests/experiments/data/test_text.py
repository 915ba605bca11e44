import random

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Pool
from sbmt.experiments.data.text import ARCHIVE, PAIR, text_files

TRAPS = [
    b'quoted "twice" and "once',
    "next line \u0085 and line separator \u2028 é 漢 🎬".encode(),
    b"\xef\xbb\xbfa\ttab\r\nand\nand\r",
    b"",
]


def reviews(split):
    """(name, content) of both classes; numbers so that text order is not their order."""
    rows = [(f"aclImdb/{split}/neg/{i}_{1 + i % 4}.txt", TRAPS[i % 4]) for i in range(12)]
    rows += [(f"aclImdb/{split}/pos/{i}_{7 + i % 4}.txt", b"good %d" % i) for i in range(12)]
    return rows


ALL = reviews("train") + reviews("test")


@pytest.fixture
def lay_out(tmp_path, write_tar):
    """Writes reviews as one archive or as one per split; returns the folder."""

    def lay_out(layout, rows=ALL):
        members = random.Random(0).sample(rows, len(rows))
        if layout == "archive":
            write_tar(tmp_path / ARCHIVE, members)
        for split, name in PAIR.items() if layout == "pair" else ():
            write_tar(tmp_path / name, [row for row in members if f"/{split}/" in row[0]])
        return tmp_path

    return lay_out


@pytest.mark.parametrize("layout", ["archive", "pair"])
def test_every_layout_gives_the_same_examples(lay_out, pool_of, layout):
    source = text_files(lay_out(layout))
    pool, documents = pool_of(source)
    assert documents == [(content,) for _, content in ALL]  # bytes as they are, numbers in order, negative ones first
    assert pool.labels.tolist() == ([0] * 12 + [1] * 12) * 2
    assert pool.extras["rating"].tolist() == [int(name[:-4].split("_")[-1]) for name, _ in ALL]
    assert pool.splits.tolist() == ["train"] * 24 + ["test"] * 24
    assert bool(source.notes) == (layout == "pair")


def test_a_tenth_of_the_training_reviews_is_held_out(lay_out):
    source = text_files(lay_out("archive"))
    splits = np.array(["train"] * 25000 + ["test"] * 25000)
    nothing = np.zeros(50000, dtype=np.int64)
    splits_of = source.arrange(Pool(nothing, nothing[:, None], splits, {}))
    assert {split: len(rows) for split, rows in splits_of.items()} == {"train": 22500, "dev": 2500, "test": 25000}
    training = np.concatenate([splits_of["train"], splits_of["dev"]])
    assert np.array_equal(np.sort(training), np.arange(25000))
    assert np.array_equal(np.sort(splits_of["test"]), np.arange(25000, 50000))
    assert splits_of["dev"][:5].tolist() == [19086, 18897, 8553, 14924, 2405]
    assert abs((splits_of["test"][:4000] < 37500).mean() - 0.5) < 0.05  # its first examples are a fair sample


@pytest.mark.parametrize("name", ["test/neg/5_1.html", "test/neg/٣_1.txt"])
def test_odd_names_are_refused(lay_out, name):
    source = text_files(lay_out("archive", [*ALL, (f"aclImdb/{name}", b"")]))
    with pytest.raises(SbmtError, match=r"named <id>_<rating>.txt"):
        list(source.parts())
