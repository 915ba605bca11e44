"""Images as sequences of grey levels: which of ten classes do they show? Reads CIFAR-10 from its binary files."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.locate import checked_sha256, find_files, missing, open_binary, tar_files
from sbmt.experiments.data.source import Arrangement, Examples, Pool, Shard, Source

ARCHIVE = "cifar-10-binary.tar.gz"
FOLDER = "cifar-10-batches-bin"
BATCHES = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)}
LOSSY = {"train": ("cifar10_grey_train.bin.gz",), "test": ("cifar10_grey_test.bin.gz",)}
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

GREY = {"floor": (1, 10_000), "tensorflow": (511, 5_100_000)}
"""How the weighted sum, in ten-thousandths, becomes a level: times the first number, over the second, rounded down."""

STAND_IN = (
    "Grey levels of CIFAR-10 images that had been stored as JPEG of quality 75, a fifth of all of them: close to the "
    "real pixels, not equal. Results do not compare with published ones."
)


def grey_levels(rgb: NDArray[np.uint8], rule: str = "floor") -> NDArray[np.uint8]:
    r"""Grey levels of colours, $\lfloor 0.2989\,R + 0.5870\,G + 0.1140\,B \rfloor$.

    They are computed in whole numbers, so that they are the same on every machine.

    The rule ``tensorflow`` is what ``tf.image.rgb_to_grayscale``, and so Long Range Arena, makes of bytes: it scales to
    0 … 1 and back by 255.5 before it rounds down, so that a quarter of the colours come out one level brighter.
    (TensorFlow's rounding errors, which are not imitated, decide about one colour in 70,000.)

    Shapes: ``(..., 3, pixels)`` to ``(..., pixels)``.

    Raises:
        SbmtError: If the rule is unknown.

    Example:
        >>> white = np.full((3, 1), 255, np.uint8)
        >>> grey_levels(white).tolist(), grey_levels(white, "tensorflow").tolist()
        ([254], [255])
    """
    times, over = choose("rule", rule, GREY)
    weights = np.array([2989, 5870, 1140], dtype=np.uint32)
    total = (rgb * weights[:, None]).sum(axis=-2, dtype=np.uint32)
    return (total * np.uint32(times) // np.uint32(over)).astype(np.uint8)


def _records(content: bytes, name: str, rule: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Labels and grey levels of a file of records: a byte for the label, then colours, or grey if the rule is empty."""
    size = 1 + (3 * N_PIXELS if rule else N_PIXELS)
    if not content or len(content) % size:
        raise SbmtError(f"{name} to hold one or more records of {size} bytes", f"{len(content)} bytes", f"{GET} again")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
    labels, pixels = records[:, 0].astype(np.int64), records[:, 1:]
    if labels.max() >= len(CLASSES):
        raise SbmtError(f"labels 0 to 9 in {name}", int(labels.max()), f"{GET} again")
    if not rule:
        return labels, pixels
    if len(labels) != N_IMAGES:
        raise SbmtError(f"{N_IMAGES:,} images in {name}", f"{len(labels):,}", f"{GET} again")
    return labels, grey_levels(pixels.reshape(-1, 3, N_PIXELS), rule)


def _examples(batches: list[tuple[NDArray[np.int64], NDArray[np.uint8]]]) -> Examples:
    labels = np.concatenate([labels for labels, _ in batches])
    symbols = np.concatenate([grey.ravel() for _, grey in batches])
    return Examples(symbols, np.full((len(labels), 1), N_PIXELS), labels)


def _from_archive(path: Path, names: tuple[str, ...], rule: str) -> Examples:
    wanted = {PurePosixPath(FOLDER, name): name for name in names}
    batches = {
        wanted[PurePosixPath(name)]: _records(content, f"{name} in {path}", rule)
        for name, content in tar_files(path, lambda name: PurePosixPath(name) in wanted)
    }
    if len(batches) < len(names):
        raise missing(map(str, wanted), path, batches, GET)
    return _examples([batches[name] for name in names])


def _from_files(paths: list[Path], rule: str) -> Examples:
    batches = []
    for path in paths:
        with open_binary(path) as file:
            batches.append(_records(file.read(), str(path), rule))
    return _examples(batches)


def _arrange(pool: Pool) -> Arrangement:
    """The last tenth of the training images is the dev split."""
    train = np.flatnonzero(pool.splits == "train")
    n_train = len(train) * 9 // 10
    return {"train": train[:n_train], "dev": train[n_train:], "test": np.flatnonzero(pool.splits == "test")}


def image_files(path: Path | str, *, grey: str = "floor") -> Source:
    """CIFAR-10 images as 1024 grey levels, row by row. The levels are the token ids; no id is reserved for padding.

    The last tenth of the 50,000 training images is the dev split. Long Range Arena divides them likewise, but in the
    order in which TensorFlow Datasets stores the images. So its splits have the same sizes, but other images.

    Args:
        path: ``cifar-10-binary.tar.gz``, or an archive with the same members under another name; the folder
            ``cifar-10-batches-bin`` or a file in it; or a folder that has one of these itself or in a folder ``image``.
            If they are not there, the stand-in ``cifar10_grey_{train,test}.bin.gz`` is looked for: records of a label
            and 1024 grey levels.
        grey: How colours become grey, see :func:`grey_levels`. It has no effect on the stand-in, made by ``floor``.

    Returns:
        A source named ``image``, or ``image-lossy`` with origin ``stand-in``.

    Raises:
        SbmtError: If files are missing, only the Python version is there, or a checksum is wrong. From a shard, if a
            batch does not consist of 10,000 records, a label is above 9, or an archive lacks a batch or has one twice.

    Source: Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009).
    """
    path = Path(path)
    choose("grey", grey, GREY)
    archive = find_files(path, [ARCHIVE], FOLDERS).get(ARCHIVE)
    if path.is_file() and (".tar" in path.name or path.suffix == ".tgz") and path.name not in PICKLES:
        archive = path  # under whatever name
    if archive is not None:
        make = {split: partial(_from_archive, archive, names, grey) for split, names in BATCHES.items()}
        return _source({archive.name: archive}, make, grey)
    for batches, rule, get in ((BATCHES, grey, GET), (LOSSY, "", "get both files")):
        names = [name for split in batches.values() for name in split]
        if found := find_files(path, names, FOLDERS):
            if len(found) < len(names):
                raise missing(names, path, found, get)
            read = {s: partial(_from_files, [found[name] for name in wanted], rule) for s, wanted in batches.items()}
            return _source(found, read, rule)
    pickles = find_files(path, PICKLES, (*FOLDERS, "cifar-10-batches-py"))
    raise missing([f"{ARCHIVE} or the folder {FOLDER}"], path, pickles, GET)


def _source(files: dict[str, Path], read: Mapping[str, Callable[[], Examples]], rule: str) -> Source:
    """A source of files whose colours become grey by a rule; the stand-in, which is grey, has none."""
    settings = {"files": {name: checked_sha256(file) for name, file in files.items()}, "grey": rule or "floor"}
    return Source(
        name="image" if rule else "image-lossy",
        task="image",
        origin="official" if rule else "stand-in",
        class_names=CLASSES,
        vocab_size=256,
        first_id=0,
        settings=settings if rule else settings | {"note": STAND_IN},
        shards=tuple(Shard(split, make, split) for split, make in read.items()),
        arrange=_arrange,
    )
