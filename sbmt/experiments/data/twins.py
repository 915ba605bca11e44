"""Twins among photographs: which crops show a picture of which there is another crop?"""

from math import isqrt

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.repeated_tokens import mark_repeats


def pictures_of(split: Split) -> UInt8[Tensor, "pictures side side"]:
    """All pictures of a split of prepared images.

    Raises:
        SbmtError: If they are not squares of one size.
    """
    n_pixels = set(split.lengths[split.indices].ravel().tolist())
    side = isqrt(min(n_pixels))
    if n_pixels != {side * side}:
        raise SbmtError("square pictures of one size", f"{sorted(n_pixels)} pixels", "prepare images of one size")
    pixels = np.stack([split.documents(example)[0] for example in range(len(split))])
    return torch.from_numpy(pixels.reshape(-1, side, side))


def sample_twins(
    pictures: UInt8[Tensor, "pictures side side"],
    batch_size: int,
    length: int,
    crop: int,
    *,
    generator: torch.Generator | None = None,
) -> tuple[Float[Tensor, "batch n pixels"], Float[Tensor, "batch n"]]:
    """Draws sequences of crops and marks those whose picture occurs elsewhere in their sequence.

    For every sequence n pictures are drawn, with replacement; n crops then each choose one of these and a place in it,
    uniformly. So it is repeated tokens with pictures as values, and two tokens of one value overlap more or less.

    Args:
        pictures: Grey levels.
        batch_size: Number of sequences.
        length: Crops of a sequence, n.
        crop: Side of a crop in pixels.
        generator: Source of randomness.

    Returns:
        Tokens float32 ``(batch, n, crop²)``, grey levels brought from 0 … 255 to −2 … 2, and labels ``(batch, n)``,
        1.0 where the picture occurs again.

    Raises:
        SbmtError: If a size is below 1, or a crop is larger than the pictures.
    """
    check_sizes(batch_size=batch_size, length=length, crop=crop)
    n_pictures, side = pictures.shape[:2]
    if crop > side:
        raise SbmtError(f"crop ≤ {side}, the side of the pictures", crop, "cut smaller crops")
    # All in one draw, so that a batch holds what single sequences would.
    uniform = torch.rand(batch_size, length, 4, dtype=torch.float64, generator=generator)
    sizes = torch.tensor([n_pictures, length, side - crop + 1, side - crop + 1])
    drawn, chosen, top, left = (uniform * sizes).long().unbind(2)  # batch n each
    picture = drawn.gather(1, chosen)
    crops = pictures.unfold(1, crop, 1).unfold(2, crop, 1)[picture, top, left]  # batch n crop crop
    return crops.flatten(2) / 63.75 - 2, mark_repeats(picture, n_pictures)
