"""Reads CIFAR-10 as sequences of grey levels, to be classified into ten classes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import find_files, missing, read_unpacked, sha256_of, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Parts, Pool, Source

ARCHIVE = "cifar-10-binary.tar.gz"
BATCHES = {f"data_batch_{i}.bin": "train" for i in range(1, 6)} | {"test_batch.bin": "test"}
LOSSY = {"cifar10_grey_train.bin.gz": "train", "cifar10_grey_test.bin.gz": "test"}
GET = f"download https://www.cs.toronto.edu/~kriz/{ARCHIVE}, the binary version (the Python version contains pickles)"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_PIXELS = 1024
STAND_IN = "A fifth of the images, in grey after JPEG compression. Results are not comparable with published ones."


def grey_levels(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Converts colours to grey levels, ⌊0.2989 R + 0.5870 G + 0.1140 B⌋, in integer arithmetic.

    Long Range Arena uses TensorFlow's ``rgb_to_grayscale``, which renders a quarter of the colours one level brighter.
    """
    weights = np.array([2989, 5870, 1140], dtype=np.uint32)
    return ((rgb * weights[:, None]).sum(axis=-2, dtype=np.uint32) // 10_000).astype(np.uint8)  # (…, pixels)


def _examples(content: bytes, name: str, is_grey: bool) -> Examples:
    """Parses the records of a file, each a label byte followed by colours or grey levels."""
    size = 1 + N_PIXELS * (1 if is_grey else 3)
    if not content or len(content) % size:
        raise SbmtError(f"{name} to contain records of {size} bytes", f"{len(content)} bytes", f"{GET} again")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    labels, pixels = records[:, 0].astype(np.int64), records[:, 1:]
    if labels.max() >= len(CLASSES):
        raise SbmtError(f"labels 0 to 9 in {name}", int(labels.max()), f"{GET} again")
    if not is_grey:
        pixels = grey_levels(pixels.reshape(-1, 3, N_PIXELS))
    return Examples(pixels.ravel(), np.full((len(labels), 1), N_PIXELS), labels)


def _from_archive(path: Path) -> Iterator[tuple[str, Examples]]:
    wanted = {PurePosixPath("cifar-10-batches-bin", name): split for name, split in BATCHES.items()}
    found = {
        PurePosixPath(name): _examples(content, f"{name} in {path}", is_grey=False)
        for name, content in tar_files(path, lambda name: PurePosixPath(name) in wanted)
    }
    if len(found) < len(wanted):
        raise missing(map(str, wanted), path, [name.name for name in found], GET)
    yield from ((split, found[name]) for name, split in wanted.items())


def _from_levels(files: dict[str, Path]) -> Iterator[tuple[str, Examples]]:
    for name, split in LOSSY.items():
        yield split, _examples(read_unpacked(files[name]), name, is_grey=True)


def _arrange(pool: Pool) -> Arrangement:
    """Holds out the last tenth of the training images as the dev split."""
    train = np.flatnonzero(pool.splits == "train")
    n_train = len(train) * 9 // 10
    return {"train": train[:n_train], "dev": train[n_train:], "test": np.flatnonzero(pool.splits == "test")}


def image_files(path: Path | str) -> Source:
    """Returns the source of CIFAR-10 images as 1024 grey levels, which are the token ids. A tenth of train becomes dev.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    path = Path(path)
    official, lossy = (find_files(path, names, ["image"]) for names in ([ARCHIVE], LOSSY))
    if not official and len(lossy) < len(LOSSY):
        raise missing(LOSSY if lossy else [ARCHIVE], path, lossy, GET)
    settings = {"files": {name: sha256_of(file) for name, file in (official or lossy).items()}, "grey": "floor"}
    if official:
        parts: Parts = partial(_from_archive, official[ARCHIVE])
        return Source("image", "image", "official", CLASSES, 256, 0, settings, parts, _arrange)
    parts, notes = partial(_from_levels, lossy), (STAND_IN,)
    return Source("image-lossy", "image", "stand-in", CLASSES, 256, 0, settings, parts, _arrange, notes=notes)
