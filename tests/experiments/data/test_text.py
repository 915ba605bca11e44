import random

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.source import Pool
from sbmt.experiments.data.text import ARCHIVE, PAIR, text_files
from tests.experiments.data.layouts import packed

TRAPS = [
    b'quoted "twice" and "once',
    "next line \u0085 and line separator \u2028 é 漢 🎬".encode(),
    b"\xef\xbb\xbfa\ttab\r\nand\nand\r",
    b"",
]


def reviews(split):
    """Returns (name, content) pairs of both classes, numbered so that alphabetical order is a different order."""
    rows = [(f"aclImdb/{split}/neg/{i}_{1 + i % 4}.txt", TRAPS[i % 4]) for i in range(12)]
    rows += [(f"aclImdb/{split}/pos/{i}_{7 + i % 4}.txt", b"good %d" % i) for i in range(12)]
    return rows


ALL = reviews("train") + reviews("test")


def write(folder, layout, rows=ALL):
    """Writes reviews as one archive or as one per split, and returns the folder."""
    members = random.Random(0).sample(rows, len(rows))
    if layout == "archive":
        (folder / ARCHIVE).write_bytes(packed(members))
    for split, name in PAIR.items() if layout == "pair" else ():
        (folder / name).write_bytes(packed([row for row in members if f"/{split}/" in row[0]]))
    return folder


@pytest.mark.parametrize("layout", ["archive", "pair"])
def test_every_layout_gives_the_same_examples(tmp_path, pool_of, layout):
    source = text_files(write(tmp_path, layout))
    pool, documents = pool_of(source)
    assert documents == [(content,) for _, content in ALL]  # bytes as they are, numbers in order, negative ones first
    assert pool.labels.tolist() == ([0] * 12 + [1] * 12) * 2
    assert pool.extras["rating"].tolist() == [int(name[:-4].split("_")[-1]) for name, _ in ALL]
    assert pool.splits.tolist() == ["train"] * 24 + ["test"] * 24
    assert bool(source.notes) == (layout == "pair")


def test_a_tenth_of_the_training_reviews_is_held_out(tmp_path):
    source = text_files(write(tmp_path, "archive"))
    splits = np.array(["train"] * 25000 + ["test"] * 25000)
    nothing = np.zeros(50000, dtype=np.int64)
    splits_of = source.arrange(Pool(nothing, nothing[:, None], splits, {}))
    assert len(splits_of["dev"]) == 2500 and len(splits_of["test"]) == 25000
    assert sorted(np.concatenate([splits_of["train"], splits_of["dev"]])) == list(range(25000))
    assert splits_of["dev"][:5].tolist() == [19086, 18897, 8553, 14924, 2405]
    assert abs((splits_of["test"][:4000] < 37500).mean() - 0.5) < 0.05  # the first examples are a random sample


@pytest.mark.parametrize("name", ["test/neg/5_1.html", "test/neg/٣_1.txt"])
def test_odd_names_are_refused(tmp_path, name):
    source = text_files(write(tmp_path, "archive", [*ALL, (f"aclImdb/{name}", b"")]))
    with pytest.raises(SbmtError, match=r"named <id>_<rating>.txt"):
        list(source.parts())
