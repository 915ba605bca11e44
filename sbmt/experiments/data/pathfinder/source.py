"""Pathfinder generated: images as sequences of grey levels, in shards."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.pathfinder.images import generate_images
from sbmt.experiments.data.pathfinder.settings import PathfinderSettings
from sbmt.experiments.data.source import Arrangement, Examples, Origin, Pool, Shard, Source, shuffled

SHARD_SIZE = 1000
CLASSES = ("apart", "connected")


def pathfinder_source(
    settings: PathfinderSettings | None = None,
    *,
    n_images: int = 200_000,
    seed: int = 0,
    name: str = "pathfinder",
) -> Source:
    """Generated images; see :func:`~sbmt.experiments.data.pathfinder.images.generate_images`.

    The symbols are the pixels, row by row, and their grey levels are the token ids; no id is reserved for padding.
    Shard i depends only on the settings, the seed, i and its size, which is 1000 except for the last one. A permutation
    drawn by the seed divides all images 8 : 1 : 1 into train, dev and test.

    Args:
        settings: None for the hardest images of Long Range Arena.
        n_images: Number of images in all splits together.
        seed: Seed of the draws.
        name: Name of the folder in which the prepared examples are kept.

    Returns:
        A source with the extras ``marker_distance``, the distance of the discs in pixels, and ``turn``, how much the
        snakes under them wind, in radians.

    Raises:
        SbmtError: If a number is out of range. From a shard, if the settings leave no room for the snakes.

    Cost: four to six minutes for the defaults on one core.
    """
    check_seed(seed)
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
    return make_source(name, "generated", recorded, tuple(shards), seed)


def generate_shard(shard: int, n_images: int, seed: int, settings: PathfinderSettings) -> Examples:
    """The images of shard number ``shard``.

    Raises:
        SbmtError: If the settings leave no room for the snakes.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, shard])))
    images = generate_images(n_images, generator, settings)
    return Examples(
        images.pixels.ravel(),
        np.full((n_images, 1), settings.size**2, dtype=np.int64),
        images.labels,
        {"marker_distance": images.marker_distances, "turn": images.turns},
    )


def make_source(name: str, origin: Origin, settings: dict[str, Any], shards: tuple[Shard, ...], seed: int) -> Source:
    """A source of Pathfinder images, split 8 : 1 : 1 by a permutation that the seed draws."""
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
    """Eight tenths for train, one tenth for dev, and the rest for test."""
    n = len(pool.labels)
    order: NDArray[np.int64] = shuffled(n, seed)
    n_train, n_dev = n * 8 // 10, n // 10
    return {"train": order[:n_train], "dev": order[n_train : n_train + n_dev], "test": order[n_train + n_dev :]}
