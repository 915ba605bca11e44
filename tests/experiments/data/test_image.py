from fractions import Fraction

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data.image import ARCHIVE, image_files
from tests.experiments.data.layouts import CIFAR, cifar_batch, packed

FOLDER = "cifar-10-batches-bin"
BINARY = {name: cifar_batch(seed)[1].tobytes() for seed, name in enumerate(CIFAR)}


def write(folder, **changed):
    """Writes the archive with small batches, and returns its folder."""
    batches = BINARY | changed
    members = [(f"{FOLDER}/{name}", batches[name]) for name in reversed(CIFAR) if batches[name] is not None]
    members[3:3] = [(f"{FOLDER}/readme.html", b"text"), ("other/data_batch_1.bin", b"not this")]
    (folder / ARCHIVE).write_bytes(packed([*members, (f"../{FOLDER}/data_batch_1.bin", b"not this")]))
    return folder


def grey_by_hand(record):
    """Computes grey levels pixel by pixel in exact arithmetic."""
    weights = (Fraction(2989, 10000), Fraction(5870, 10000), Fraction(1140, 10000))
    planes = [record[1 + 1024 * i : 1 + 1024 * (i + 1)].tolist() for i in range(3)]
    return bytes(int(sum(w * v for w, v in zip(weights, rgb, strict=True))) for rgb in zip(*planes, strict=True))


def test_the_archive_gives_grey_levels(tmp_path, pool_of):
    source = image_files(write(tmp_path))
    pool, documents = pool_of(source)
    batches = [cifar_batch(seed) for seed in range(6)]
    assert pool.labels.tolist() == np.concatenate([labels for labels, _ in batches]).tolist()
    assert documents == [(grey_by_hand(record),) for _, records in batches for record in records]
    assert pool.splits.tolist() == ["train"] * 15 + ["test"] * 3
    arranged = {split: rows.tolist() for split, rows in source.arrange(pool).items()}
    assert arranged == {"train": list(range(13)), "dev": [13, 14], "test": [15, 16, 17]}


@pytest.mark.parametrize(
    "content, message",
    [
        (BINARY["data_batch_4.bin"][:-1], "records of 3073 bytes"),
        (b"\x0a" + bytes(3 * 3073 - 1), "labels 0 to 9 in .*, got 10"),
        (None, "got only data_batch_"),
    ],
)
def test_damaged_batches_are_refused(tmp_path, content, message):
    source = image_files(write(tmp_path, **{"data_batch_4.bin": content}))
    with pytest.raises(SbmtError, match=message) as error:
        list(source.parts())
    assert "data_batch_4.bin" in str(error.value)
