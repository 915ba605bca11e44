"""Draws the edges of a decoder's new queries; data about earlier keys persists between calls."""

from typing import Any

from torch import Tensor

from sbmt.kernels.build import library
from sbmt.kernels.operators import as_crossed, draw_by


def remember(batch: int, heads: int, blocks: Tensor) -> Any:
    """Returns an object in which :func:`draw_next` stores data about a decoder's keys; deleting it frees the data."""
    ffi, loops = library(blocks.dtype)
    kept = loops.remember(batch * heads, blocks.shape[1] // 2, blocks.shape[2])
    if kept == ffi.NULL:
        raise MemoryError("out of memory: data about a decoder's keys could not be stored")
    return ffi.gc(kept, loops.forget)


def draw_next(
    kept: Any, query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, offset: int,
    seed: int, first_example: int, reach: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns ``row_ptr`` and ``keys`` for queries from position ``offset`` on, in time independent of ``offset``.

    ``part`` and ``weight`` start with all keys and may have spare capacity; ``kept`` has data about earlier keys.
    """
    model = [as_crossed(query_part, query_weight, blocks, part, weight), 0.0]
    address = seed, first_example, reach, offset
    return draw_by("draw_causal", model, query_part, part, [None, None], *address, kept)
