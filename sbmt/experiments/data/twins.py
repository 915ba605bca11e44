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
    """All pictures of a split of prepared images."""
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
    """Draws sequences of crops, grey levels brought from 0 … 255 to −2 … 2, and marks those whose picture occurs again.

    For every sequence n pictures are drawn, with replacement; n crops then each choose one of these and a place in it,
    uniformly. So it is repeated tokens with pictures as values, and two tokens of one value overlap more or less.
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


N_FREQUENCIES = 6  # in either direction that are kept


def low_frequencies(crops: Float[Tensor, "batch n pixels"]) -> Float[Tensor, "batch n coefficients"]:
    r"""The lowest coefficients of the cosine transform of square crops, brought to about the same variance.

    Of a crop $x$ of side $c$ these are, for frequencies $f, g < 6$,

    $$\frac{2}{c^2} \sqrt{1 + f^2 + g^2}
    \sum_{i,j} x_{ij} \cos\frac{\pi f (i + 1/2)}{c} \cos\frac{\pi g (j + 1/2)}{c}.$$
    """
    side = isqrt(crops.shape[2])
    frequencies = torch.arange(min(N_FREQUENCIES, side))
    waves = torch.cos(torch.pi / side * (torch.arange(side)[:, None] + 0.5) * frequencies)  # side k
    scale = 2 / side**2 * (1 + frequencies[:, None] ** 2 + frequencies**2).sqrt()
    return (waves.T @ crops.unflatten(2, (side, side)) @ waves * scale).flatten(2)
