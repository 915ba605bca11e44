"""Rows of keys, of which nobody knows beforehand how many there will be: drawn in pieces, and joined."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.threads.parallel import in_parallel
from sbmt.kernels.cpu.toolchain import kernel

_ROOM = 1 << 16  # keys of a piece that are drawn at a time


class Pieces(NamedTuple):
    """Ranges of rows, each with room for some keys. A row's keys come in ascending order, one row after the other."""

    row: np.ndarray  # the first row of each that is not drawn yet
    end: np.ndarray  # the first row after each
    found: np.ndarray  # how many keys ``out`` holds
    out: np.ndarray  # int32 (pieces, room)


def draw_in_pieces(draw: Callable[..., Any], bounds: np.ndarray, n_keys: int, *arguments: Any) -> list[Pieces]:
    """Draws rows between consecutive bounds: the pieces as they were when their room was full, until no row is left.

    ``draw(start, stop, pieces, *arguments)`` is a kernel that fills pieces start … stop.
    """
    drawn = []
    row, end = bounds[:-1], bounds[1:]
    while (row < end).any():
        out = np.empty((row.size, max(_ROOM, n_keys)), np.int32)  # at least one row has room
        drawn.append(Pieces(row, end, np.empty_like(row), out))
        row = row.copy()
        in_parallel(draw, np.arange(row.size + 1), drawn[-1]._replace(row=row), *arguments)
    return drawn


def join(counts: np.ndarray, drawn: list[Pieces]) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of all rows, from the number of keys of each and the pieces that hold them."""
    row_ptr = np.concatenate([[0], counts.cumsum()])
    keys = torch.empty(int(row_ptr[-1]), dtype=torch.int64)
    for pieces in drawn:
        in_parallel(_copy_keys, np.arange(pieces.row.size + 1), pieces, row_ptr, keys.numpy())
    return torch.from_numpy(row_ptr), keys


@kernel
def _copy_keys(start, stop, pieces, row_ptr, keys):
    for piece in range(start, stop):
        first = row_ptr[pieces.row[piece]]
        for i in range(pieces.found[piece]):
            keys[first + i] = pieces.out[piece, i]
