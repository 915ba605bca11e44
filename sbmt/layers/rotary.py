"""Rotary positions: each query and key is turned by an angle that grows with its position."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes

BASE = 10_000.0


def rotate(x: Float[Tensor, "*axes n d"], first: int = 0) -> Float[Tensor, "*axes n d"]:
    r"""Turns each pair of neighbouring numbers of a vector by an angle in proportion to the vector's position.

    Read as complex numbers, pair c of the vector at position t becomes

    $$z_{t,c} \leftarrow z_{t,c}\, e^{i t \theta_c}, \qquad \theta_c = 10000^{-2c/d},$$

    so the product of a query at position s and a key at position t depends on t − s alone, and lengths stay.

    Args:
        x: Vectors at positions first, first + 1, … along the next to last axis; d is even.
        first: Position of the first vector.

    Angles are float32 at least, also under autocast: 16 bits cannot tell large positions apart.

    Cost: O(n · d) time and memory for each head.

    Source: Su, Lu, Pan, Murtadha, Wen and Liu (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding".
    """
    n, d = x.shape[-2:]
    dtype = torch.promote_types(x.dtype, torch.float32)
    slowness = torch.arange(0, d, 2, dtype=dtype, device=x.device) / d
    angle = torch.arange(first, first + n, dtype=dtype, device=x.device)[:, None] * BASE**-slowness  # n d/2
    cosine, sine = angle.cos(), angle.sin()
    real, imaginary = x.to(dtype).unflatten(-1, (-1, 2)).unbind(-1)  # *axes n d/2
    turned = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1)
    return turned.flatten(-2).to(x.dtype)


class RotaryPositions(nn.Module):
    """Turns queries and keys by their positions: the ``transform_heads`` of ``positions="rotary"``.

    Args:
        d_head: Width of a head, an even number. Positions count from the first token of the padded sequence.
    """

    def __init__(self, d_head: int) -> None:
        super().__init__()
        check_sizes(d_head=d_head)
        if d_head % 2:
            raise SbmtError("heads of even width for rotary positions", d_head, "change the number of heads")

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        first: int = 0,
    ) -> tuple[Float[Tensor, "batch heads n_queries d"], Float[Tensor, "batch heads n_keys d"]]:
        """Returns both, turned by positions that count from ``first``."""
        return rotate(query, first), rotate(key, first)
