"""Addresses of numbers in memory: kernels read queries, keys and values in place, so that nothing is copied."""

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor


class Strided(NamedTuple):
    """A tensor ``(batch, heads, n, width)`` and its strides; the last dimension is contiguous."""

    start: Any
    example: Any
    head: Any
    token: Any


def strided(x: Tensor) -> Strided:
    """Returns the tensor as kernels read it; a copy is made only if its last dimension is not contiguous."""
    x = x if x.stride(3) == 1 else x.contiguous()
    return Strided(x, *x.stride()[:3])


@triton.jit
def rows_of(x, example, head, tokens):
    """Returns the addresses of the given tokens of one example and head."""
    return x.start + example * x.example + head * x.head + tokens.to(tl.int64) * x.token


@triton.jit
def tile(matrix, rows, is_row, n_columns, COLUMNS: tl.constexpr):
    """Returns the addresses of the elements of a matrix's rows, and which of these elements exist."""
    column = tl.arange(0, COLUMNS)[None, :]
    return matrix + rows[:, None] * n_columns + column, is_row[:, None] & (column < n_columns)


@triton.jit
def product(x, y):
    """Multiplies matrices on tensor cores, about as precisely as in float32; no dimension may be less than 16."""
    real: tl.constexpr = tl.float64 if x.dtype == tl.float64 else tl.float32
    return tl.dot(x, y, input_precision="tf32x3", out_dtype=real)


class Mask(NamedTuple):
    """A mask ``(batch, n)`` and its strides, or any other tensor if all tokens are real."""

    start: Any
    example: Any
    token: Any


def strided_mask(mask: Tensor | None, other: Tensor) -> Mask:
    """Returns the mask as kernels read it, or a placeholder if there is none."""
    return Mask(other, 0, 0) if mask is None else Mask(mask, *mask.stride())


@triton.jit
def are_real(mask, example, tokens, inside, IS_GIVEN: tl.constexpr):
    """Returns which of the tokens ``inside`` are real."""
    if IS_GIVEN:
        inside = tl.load(mask.start + example * mask.example + tokens * mask.token, inside, 0) != 0
    return inside
