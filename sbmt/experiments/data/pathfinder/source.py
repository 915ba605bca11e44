"""Pathfinder as sequences of grey levels: are two discs joined by a chain of paddles? Generated, or from files."""

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
    """Eight tenths to train on, one to choose by, and what is left to report."""
    n = len(pool.labels)
    order: NDArray[np.int64] = shuffled(n, seed)
    n_train, n_dev = n * 8 // 10, n // 10
    return {"train": order[:n_train], "dev": order[n_train : n_train + n_dev], "test": order[n_train + n_dev :]}
