"""Images as sequences of grey levels: which of ten classes do they show? Reads CIFAR-10 from its binary files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.locate import checked_sha256, find_files, missing, read_unpacked, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Source

ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
BATCHES = {f"data_batch_{i}.bin": "train" for i in range(1, 6)} | {"test_batch.bin": "test"}
LOSSY = {"cifar10_grey_train.bin.gz": "train", "cifar10_grey_test.bin.gz": "test"}
FOLDERS = ("image", FOLDER, f"image/{FOLDER}")
PICKLES = ("cifar-10-python.tar.gz", "data_batch_1")
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

    Shapes: ``(..., 3, pixels)`` to ``(..., pixels)``.

    Example:
        >>> grey_levels(np.full((3, 1), 255, np.uint8)).tolist()
        [254]
    """
    weights = np.array([2989, 5870, 1140], dtype=np.uint32)
    return ((rgb * weights[:, None]).sum(axis=-2, dtype=np.uint32) // 10_000).astype(np.uint8)


def _examples(content: bytes, name: str, is_lossy: bool) -> Examples:
    """The records of a file: a byte for the label, then colours, or grey levels."""
    size = 1 + (N_PIXELS if is_lossy else 3 * N_PIXELS)
    if not content or len(content) % size:
        raise SbmtError(f"{name} to hold one or more records of {size} bytes", f"{len(content)} bytes", f"{GET} again")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    labels, pixels = records[:, 0].astype(np.int64), records[:, 1:]
    if labels.max() >= len(CLASSES):
        raise SbmtError(f"labels 0 to 9 in {name}", int(labels.max()), f"{GET} again")
    if not is_lossy:
        if len(labels) != N_IMAGES:
            raise SbmtError(f"{N_IMAGES:,} images in {name}", f"{len(labels):,}", f"{GET} again")
        pixels = grey_levels(pixels.reshape(-1, 3, N_PIXELS))
    return Examples(pixels.ravel(), np.full((len(labels), 1), N_PIXELS), labels)


def _from_archive(path: Path) -> Iterator[tuple[str, Examples]]:
    wanted = {PurePosixPath(FOLDER, name): name for name in BATCHES}
    found = {
        wanted[PurePosixPath(name)]: _examples(content, f"{name} in {path}", is_lossy=False)
        for name, content in tar_files(path, lambda name: PurePosixPath(name) in wanted)
    }
    if len(found) < len(wanted):
        raise missing(map(str, wanted), path, found, GET)
    yield from ((split, found[name]) for name, split in BATCHES.items())


def _from_files(files: dict[str, Path], splits: dict[str, str]) -> Iterator[tuple[str, Examples]]:
    for name, split in splits.items():
        yield split, _examples(read_unpacked(files[name]), str(files[name]), splits is LOSSY)


def _arrange(pool: Pool) -> Arrangement:
    """The last tenth of the training images is the dev split."""
    train = np.flatnonzero(pool.splits == "train")
    n_train = len(train) * 9 // 10
    return {"train": train[:n_train], "dev": train[n_train:], "test": np.flatnonzero(pool.splits == "test")}


def image_files(path: Path | str) -> Source:
    """CIFAR-10 images as 1024 grey levels, row by row. The levels are the token ids; no id is reserved for padding.

    The last tenth of the 50,000 training images is the dev split. Long Range Arena divides them likewise, but in the
    order in which TensorFlow Datasets stores the images. So its splits have the same sizes, but other images.

    Args:
        path: ``cifar-10-binary.tar.gz``, or an archive with the same members under another name; the folder
            ``cifar-10-batches-bin`` or a file in it; or a folder that has one of these itself or in a folder ``image``.
            If they are not there, the stand-in ``cifar10_grey_{train,test}.bin.gz`` is looked for: records of a label
            and 1024 grey levels.

    Returns:
        A source named ``image``, or ``image-lossy`` with origin ``stand-in``.

    Raises:
        SbmtError: If files are missing, damaged or other ones, or only the Python version is there.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    path = Path(path)
    files = find_files(path, [ARCHIVE], FOLDERS)
    if path.is_file() and (".tar" in path.name or path.suffix == ".tgz") and path.name not in PICKLES:
        files = {path.name: path}  # under whatever name
    if files:
        parts, is_lossy = partial(_from_archive, *files.values()), False
    else:
        splits = BATCHES if find_files(path, BATCHES, FOLDERS) else LOSSY
        files, is_lossy = find_files(path, splits, FOLDERS), splits is LOSSY
        if not files:
            pickles = find_files(path, PICKLES, (*FOLDERS, "cifar-10-batches-py"))
            raise missing([f"{ARCHIVE} or the folder {FOLDER}"], path, pickles, GET)
        if len(files) < len(splits):
            raise missing(splits, path, files, "get both files" if is_lossy else GET)
        parts = partial(_from_files, files, splits)
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
