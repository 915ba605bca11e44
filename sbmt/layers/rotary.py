"""Rotary positions, which rotate each query and key by angles proportional to its position."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes

BASE = 10_000.0


def rotate(x: Float[Tensor, "*axes n d"], first: int = 0) -> Float[Tensor, "*axes n d"]:
    r"""Rotates each pair of adjacent entries of a vector by an angle proportional to the vector's position.

    With pairs as complex numbers, pair c of the vector at position t becomes

    $$z_{t,c} \leftarrow z_{t,c}\, e^{i t \theta_c}, \qquad \theta_c = 10000^{-2c/d},$$

    so the product of a query at position s and a key at position t depends on their positions only through t − s.

    Args:
        x: Vectors at positions first, first + 1, … along the second-to-last axis; d must be even.
        first: Position of the first vector.

    Cost: O(n · d) for each head.
    Source: Su, Lu, Pan, Murtadha, Wen and Liu (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding".
    """
    n, d = x.shape[-2:]
    dtype = torch.promote_types(x.dtype, torch.float32)  # 16 bits cannot represent large positions
    exponent = torch.arange(0, d, 2, dtype=dtype, device=x.device) / d
    angle = torch.arange(first, first + n, dtype=dtype, device=x.device)[:, None] * BASE**-exponent  # n d/2
    cosine, sine = angle.cos(), angle.sin()
    real, imaginary = x.to(dtype).unflatten(-1, (-1, 2)).unbind(-1)  # *axes n d/2
    rotated = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], -1)
    return rotated.flatten(-2).to(x.dtype)


class RotaryPositions(nn.Module):
    """Rotates queries and keys by their positions; serves as ``transform_heads`` for ``positions="rotary"``.

    Args:
        d_head: Width of a head, an even number. Positions count from the first token, real or padded.
    """

    def __init__(self, d_head: int) -> None:
        super().__init__()
        check_sizes(d_head=d_head)
        if d_head % 2:
            raise SbmtError("an even head width for rotary positions", d_head, "change the number of heads")

    def forward(self, query: Tensor, key: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """Returns both tensors, ``(batch, heads, n, d)``, rotated by positions that count from ``first``."""
        return rotate(query, first), rotate(key, first)
