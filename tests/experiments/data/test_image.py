import gzip
import hashlib
from fractions import Fraction

import numpy as np
import pytest

from sbmt.errors import SbmtError
from sbmt.experiments.data import image
from sbmt.experiments.data.image import ARCHIVE, grey_levels, image_files
from tests.experiments.data.layouts import CIFAR, cifar_batch

FOLDER = "cifar-10-batches-bin"
BINARY = {name: cifar_batch(seed)[1].tobytes() for seed, name in enumerate(CIFAR)}


@pytest.fixture
def archive(tmp_path, write_tar, any_checksum, monkeypatch):
    """Writes the archive with small batches; returns its folder."""
    monkeypatch.setattr(image, "N_IMAGES", 3)

    def archive(**changed):
        batches = BINARY | changed
        members = [(f"{FOLDER}/{name}", batches[name]) for name in reversed(CIFAR) if batches[name] is not None]
        members[3:3] = [(f"{FOLDER}/readme.html", b"text"), ("other/data_batch_1.bin", b"not this")]
        write_tar(tmp_path / ARCHIVE, [*members, (f"../{FOLDER}/data_batch_1.bin", b"not this")])
        return tmp_path

    return archive


def grey_by_hand(record):
    """Exact arithmetic, pixel by pixel."""
    weights = (Fraction(2989, 10000), Fraction(5870, 10000), Fraction(1140, 10000))
    planes = [record[1 + 1024 * i : 1 + 1024 * (i + 1)].tolist() for i in range(3)]
    return bytes(int(sum(w * v for w, v in zip(weights, rgb, strict=True))) for rgb in zip(*planes, strict=True))


def test_the_archive_gives_grey_levels(archive, pool_of):
    source = image_files(archive())
    pool, documents = pool_of(source)
    batches = [cifar_batch(seed) for seed in range(6)]
    assert pool.labels.tolist() == np.concatenate([labels for labels, _ in batches]).tolist()
    assert documents == [(grey_by_hand(record),) for _, records in batches for record in records]
    assert pool.splits.tolist() == ["train"] * 15 + ["test"] * 3
    arranged = {split: rows.tolist() for split, rows in source.arrange(pool).items()}
    assert arranged == {"train": list(range(13)), "dev": [13, 14], "test": [15, 16, 17]}


def test_floor_is_exact_on_every_sum_that_is_a_whole_number():
    """There a sum of rounded products may fall below the number that it should be."""
    red, green = np.meshgrid(np.arange(256), np.arange(256), indexing="ij")
    rgb = np.stack([red, green, np.full_like(red, 17)]).reshape(3, -1)
    want = (2989 * rgb[0] + 5870 * rgb[1] + 1140 * rgb[2]) // 10000
    assert np.array_equal(grey_levels(rgb.astype(np.uint8)), want)
    in_floats = np.floor(0.2989 * rgb[0] + 0.5870 * rgb[1] + 0.1140 * rgb[2])
    assert 0 < (in_floats != want).sum() < 10


@pytest.mark.parametrize(
    "content, message",
    [
        (BINARY["data_batch_4.bin"][:-1], "records of 3073 bytes"),
        (BINARY["data_batch_4.bin"][:3073], "records of 3073 bytes, 3 of them"),
        (b"\x0a" + bytes(3 * 3073 - 1), "labels 0 to 9 in .*, got 10"),
        (None, "got only data_batch_"),
    ],
)
def test_damaged_batches_are_refused(archive, content, message):
    source = image_files(archive(**{"data_batch_4.bin": content}))
    with pytest.raises(SbmtError, match=message) as error:
        list(source.parts())
    assert "data_batch_4.bin" in str(error.value)


@pytest.fixture(scope="module")
def real(shared_data):
    source = image_files(shared_data)
    return source, dict(source.parts())


def test_the_real_stand_in_has_the_known_content(real):
    """Counts and balance; and golden, the levels of the test images."""
    source, made = real
    assert (source.name, source.origin, source.settings["grey"]) == ("image-lossy", "stand-in", "floor")
    assert "JPEG" in source.notes[0]
    assert np.bincount(made["train"].labels).tolist() == [1000] * 10
    assert np.bincount(made["test"].labels).tolist() == [200] * 10
    levels = made["test"].symbols.tobytes()
    assert hashlib.sha256(levels).hexdigest() == "19ea70d748d1aff9561333468aacc47a32101f08bdbf83bed423c575e6d2f8ab"


@pytest.mark.parametrize("split, name", [("train", "data_batch_subset"), ("test", "test_batch_subset")])
def test_real_colours_become_the_real_grey_levels(real, shared_data, split, name):
    """Every image of the RGB files, made grey, is found with its label among the grey ones, level for level."""
    examples = real[1][split]
    grey = examples.symbols.reshape(-1, 1024)
    known = {(int(label), row.tobytes()) for label, row in zip(examples.labels, grey, strict=True)}
    with gzip.open(shared_data / "image" / f"{name}.bin.gz") as file:
        records = np.frombuffer(file.read(), dtype=np.uint8).reshape(-1, 3073)
    made = grey_levels(records[:, 1:].reshape(-1, 3, 1024))
    found = [(int(label), row.tobytes()) in known for label, row in zip(records[:, 0], made, strict=True)]
    assert all(found) and len(found) == {"train": 1500, "test": 300}[split]
