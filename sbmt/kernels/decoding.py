"""Draws the edges of a decoder's new queries, with the data on earlier keys kept between calls."""

from typing import Any

from torch import Tensor

from sbmt.kernels.build import library
from sbmt.kernels.operators import as_crossed, draw_by


def remember(batch: int, heads: int, blocks: Tensor) -> Any:
    """The data on a decoder's keys that :func:`draw_next` stores, until this object is deleted."""
    ffi, loops = library(blocks.dtype)
    kept = loops.remember(batch * heads, blocks.shape[1] // 2, blocks.shape[2])
    if kept == ffi.NULL:
        raise MemoryError("out of memory: the data on a decoder's keys could not be stored")
    return ffi.gc(kept, loops.forget)


def draw_next(
    kept: Any, query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, offset: int,
    seed: int, first_example: int, reach: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``row_ptr`` and ``keys`` of the queries from place ``offset`` on, in time that does not depend on it.

    Keys are at the front of ``part`` and ``weight``, which may have spare capacity; those before ``offset`` are kept.
    """
    model = [as_crossed(query_part, query_weight, blocks, part, weight), 0.0]
    address = seed, first_example, reach, offset
    return draw_by("draw_causal", model, query_part, part, [None, None], *address, kept)
