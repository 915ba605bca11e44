"""Pathfinder as sequences of grey levels: are two discs joined by a chain of paddles? Generated, or from files."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.pathfinder_files import read_images, read_rows
from sbmt.experiments.data.pathfinder_images import generate_images
from sbmt.experiments.data.pathfinder_settings import PathfinderSettings
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Pool, Shard, Source, shuffled

SHARD_SIZE = 1000
DIFFICULTY = "curv_contour_length_14"
"""The hardest of three, and the one whose results are usually published."""

CLASSES = ("apart", "connected")
ARCHIVE = "https://storage.googleapis.com/long-range-arena/lra_release.gz"


def pathfinder_source(
    settings: PathfinderSettings | None = None,
    *,
    n_images: int = 200_000,
    seed: int = 0,
    name: str = "pathfinder",
) -> Source:
    """Images made here, see :func:`~sbmt.experiments.data.pathfinder_images.generate_images`.

    Pixels row by row are the symbols, and their grey levels the token ids; no id is padding's own. Shard i depends on
    the settings, the seed, i and its size alone, which is 1000 but for the last one. A permutation drawn by the seed
    divides all images 8 : 1 : 1 into train, dev and test.

    Args:
        settings: Of the images. None for Long Range Arena's hardest.
        n_images: Of all splits together.
        seed: Of the draws, not negative.
        name: Of the folder that the prepared examples are kept in.

    Returns:
        A source whose extras are ``marker_distance`` and ``turn``, how far apart the discs are in pixels and how much
        the snakes under them wind in radians. Numbers and lengths of snakes are the same in all images:
        ``settings["images"]`` says them.

    Raises:
        SbmtError: If a number is out of range. Later, if the settings leave no room.

    Cost: four to six minutes for the defaults on one core.
    """
    _check_seed(seed)
    check_sizes(n_images=n_images)
    if n_images < 10:
        raise SbmtError("n_images ≥ 10", n_images, "give each split an image")
    settings = settings or PathfinderSettings()
    sizes = [min(SHARD_SIZE, n_images - start) for start in range(0, n_images, SHARD_SIZE)]
    shards = (Shard(f"{i:04d}", partial(generate_shard, i, size, seed, settings)) for i, size in enumerate(sizes))
    recorded = {
        "images": settings.to_json(),
        "n_images": n_images,
        "shard_size": SHARD_SIZE,
        "draws": "PCG64(SeedSequence([seed, shard]))",
    }
    return _source(name, "generated", recorded, tuple(shards), seed)


def generate_shard(shard: int, n_images: int, seed: int, settings: PathfinderSettings) -> Examples:
    """The images of a shard.

    Args:
        shard: Its number.
        n_images: Its size.
        seed: Of all shards.
        settings: Of the images.

    Raises:
        SbmtError: If the settings leave no room.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, shard])))
    images = generate_images(n_images, generator, settings)
    return Examples(
        images.pixels.ravel(),
        np.full((n_images, 1), settings.size**2, dtype=np.int64),
        images.labels,
        {"marker_distance": images.marker_distances, "turn": images.turns},
    )


def pathfinder_folder(folder: Path | str, seed: int = 0, *, size: int = 32) -> Source:
    """Long Range Arena's own images.

    Token ids as in :func:`pathfinder_source`. The order is that of the metadata files by number and of their lines;
    then a permutation drawn by the seed divides the images 8 : 1 : 1. (Long Range Arena divides them unshuffled, the
    pipeline that the paper uses after a shuffle without a seed: neither gives these splits.) Images whose file is
    empty, of which the release has some, are left out and counted in ``settings["n_empty"]``.

    Args:
        folder: With sub-folders ``imgs`` and ``metadata``; or one that has ``curv_contour_length_14``, the hardest
            kind, or ``pathfinder32`` around it, or what ``lra_release.gz`` unpacks to. The other kinds are read by
            naming theirs.
        seed: Of the splits, not negative.
        size: Pixels of an image, each way; also of the name ``pathfinder32``.

    Returns:
        A source of one shard per metadata file, with the extras ``contour_length`` and ``distractor_length``, in
        paddles; not a number where a line does not say them.

    Raises:
        SbmtError: If there is no such folder, or an image or metadata file is missing or damaged; what is wrong within
            an image shows only once its shard is read. Names the line and the file.

    Cost: looks at every line and the size of every image at once; opens the images shard by shard. The checksum is
        of the metadata, not of the images.

    Source: Linsley et al. (2018); Tay et al., Long Range Arena (ICLR 2021).
    """
    _check_seed(seed)
    check_sizes(size=size)
    place = _find(Path(folder), size)
    files = sorted((place / "metadata").glob("*.npy"), key=_by_number)
    if not files:
        raise SbmtError(f"files .npy in {place / 'metadata'}", "none", f"unpack {ARCHIVE} there again")
    n_empty, digest = 0, hashlib.sha256()
    for file in files:
        n_empty += sum(_is_empty(row.path, row.where) for row in read_rows(file, place))
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    recorded = {
        "difficulty": place.name,
        "size": size,
        "metadata": {"n_files": len(files), "sha256": digest.hexdigest()},
        "n_empty": n_empty,
    }
    shards = tuple(Shard(file.stem, partial(read_images, file, place, size)) for file in files)
    return _source("pathfinder", "official", recorded, shards, seed)


def _check_seed(seed: int) -> None:
    if seed < 0:
        raise SbmtError("seed ≥ 0", seed, "give a natural number")


def _source(name: str, origin: Origin, settings: dict[str, Any], shards: tuple[Shard, ...], seed: int) -> Source:
    return Source(
        name=name,
        task="pathfinder",
        origin=origin,
        class_names=CLASSES,
        vocab_size=256,
        first_id=0,
        settings=settings | {"seed": seed},
        shards=shards,
        arrange=partial(_arrange, seed),
    )


def _arrange(seed: int, pool: Pool) -> Arrangement:
    """Eight tenths to train on, one to choose by, and what is left to report."""
    n = len(pool.labels)
    order: NDArray[np.int64] = shuffled(n, seed)
    n_train, n_dev = n * 8 // 10, n // 10
    return {"train": order[:n_train], "dev": order[n_train : n_train + n_dev], "test": order[n_train + n_dev :]}


def _find(folder: Path, size: int) -> Path:
    """The folder of images and metadata."""
    inner = f"pathfinder{size}/{DIFFICULTY}"
    for below in ("", DIFFICULTY, inner, f"lra_release/{inner}", f"lra_release/lra_release/{inner}"):
        place = folder / below
        if (place / "imgs").is_dir() and (place / "metadata").is_dir():
            return place.resolve()
    raise SbmtError(
        f"folders imgs and metadata in {folder}, its {inner} or its lra_release",
        "no such folders" if folder.is_dir() else "no such folder",
        f"unpack {inner} of {ARCHIVE} there, or generate the images instead",
    )


def _by_number(path: Path) -> tuple[bool, int, str]:
    """Numbers in their order, then other names."""
    is_number = path.stem.isascii() and path.stem.isdigit()
    return not is_number, int(path.stem) if is_number else 0, path.stem


def _is_empty(path: Path, where: str) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError as error:
        expected = f"an image {path}, which {where} names"
        raise SbmtError(expected, error.strerror or error, f"unpack {ARCHIVE} again") from error
