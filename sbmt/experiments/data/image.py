"""Images as sequences of grey levels: which of ten classes do they show? Reads CIFAR-10 from its binary archive."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import checked_sha256, find_files, missing, read_unpacked, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source

ARCHIVE = "cifar-10-binary.tar.gz"
BATCHES = {f"data_batch_{i}.bin": "train" for i in range(1, 6)} | {"test_batch.bin": "test"}
LOSSY = {"cifar10_grey_train.bin.gz": "train", "cifar10_grey_test.bin.gz": "test"}
GET = (
    f"download https://www.cs.toronto.edu/~kriz/{ARCHIVE}, the binary version (the Python version holds pickles, "
    "which can run code and are never opened)"
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_PIXELS = 1024
N_IMAGES = 10_000
"""Images in each official batch."""

STAND_IN = (
    "Grey levels of CIFAR-10 images that had been stored as JPEG of quality 75, a fifth of all of them: close to the "
    "real pixels, not equal. Results do not compare with published ones."
)


def grey_levels(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    r"""Grey levels of colours, $\lfloor 0.2989\,R + 0.5870\,G + 0.1140\,B \rfloor$, computed in whole numbers.

    Long Range Arena takes TensorFlow's ``rgb_to_grayscale``, which makes a quarter of the colours one level brighter.

    Example:
        >>> grey_levels(np.full((3, 1), 255, np.uint8)).tolist()
        [254]
    """
    weights = np.array([2989, 5870, 1140], dtype=np.uint32)
    return ((rgb * weights[:, None]).sum(axis=-2, dtype=np.uint32) // 10_000).astype(np.uint8)  # (…, pixels)


def _examples(content: bytes, name: str, is_grey: bool) -> Examples:
    """The records of a file: a byte for the label, then colours, or grey levels."""
    size = 1 + N_PIXELS * (1 if is_grey else 3)
    if not content or len(content) % size or not (is_grey or len(content) == N_IMAGES * size):
        expected = f"{name} to hold records of {size} bytes{'' if is_grey else f', {N_IMAGES:,} of them'}"
        raise SbmtError(expected, f"{len(content)} bytes", f"{GET} again")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    labels, pixels = records[:, 0].astype(np.int64), records[:, 1:]
    if labels.max() >= len(CLASSES):
        raise SbmtError(f"labels 0 to 9 in {name}", int(labels.max()), f"{GET} again")
    if not is_grey:
        pixels = grey_levels(pixels.reshape(-1, 3, N_PIXELS))
    return Examples(pixels.ravel(), np.full((len(labels), 1), N_PIXELS), labels)


def _from_archive(path: Path) -> Iterator[tuple[str, Examples]]:
    wanted = {PurePosixPath("cifar-10-batches-bin", name): name for name in BATCHES}
    found = {
        wanted[PurePosixPath(name)]: _examples(content, f"{name} in {path}", is_grey=False)
        for name, content in tar_files(path, lambda name: PurePosixPath(name) in wanted)
    }
    if len(found) < len(wanted):
        raise missing(map(str, wanted), path, found, GET)
    yield from ((split, found[name]) for name, split in BATCHES.items())


def _arrange(pool: Pool) -> Arrangement:
    """The last tenth of the training images is the dev split."""
    train = np.flatnonzero(pool.splits == "train")
    n_train = len(train) * 9 // 10
    return {"train": train[:n_train], "dev": train[n_train:], "test": np.flatnonzero(pool.splits == "test")}


def image_files(path: Path | str) -> Source:
    """CIFAR-10 images as 1024 grey levels, row by row. The levels are the token ids; no id is reserved for padding.

    ``path`` is ``cifar-10-binary.tar.gz``, or a folder that has it itself or in a folder ``image``. If it is not there,
    the stand-in ``cifar10_grey_{train,test}.bin.gz`` is looked for: records of a label and 1024 grey levels. Its source
    is named ``image-lossy``.

    The last tenth of the 50,000 training images is the dev split. Long Range Arena divides them likewise, but in the
    order in which TensorFlow Datasets stores the images. So its splits have the same sizes, but other images.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    path = Path(path)
    files = find_files(path, [ARCHIVE], ["image"])
    is_lossy = not files
    if is_lossy:
        files = find_files(path, LOSSY, ["image"])
        if len(files) < len(LOSSY):
            raise missing(LOSSY, path, files, "get both files") if files else missing([ARCHIVE], path, {}, GET)

    def parts() -> Iterator[tuple[str, Examples]]:
        if not is_lossy:
            return _from_archive(files[ARCHIVE])
        return ((split, _examples(read_unpacked(files[name]), name, is_grey=True)) for name, split in LOSSY.items())

    sums = {name: checked_sha256(file) for name, file in files.items()}
    return Source(
        name="image-lossy" if is_lossy else "image",
        task="image",
        origin="stand-in" if is_lossy else "official",
        class_names=CLASSES,
        vocab_size=256,
        first_id=0,
        settings={"files": sums, "grey": "floor"},
        parts=parts,
        arrange=_arrange,
        notes=(STAND_IN,) if is_lossy else (),
    )
