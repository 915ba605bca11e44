"""Cuts the rows of a CSR mask into pieces of bounded length, so that no program has to work through a long row.

The result of a row that is one piece is written where it belongs. The pieces of a longer row have slots of their own,
and a second kernel joins them in order, so that results do not depend on the order in which programs run.
"""

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.toolchain import kernel
from sbmt.kernels.structures import Mask

PIECE = 512  # edges


class Pieces(NamedTuple):
    """Where each program finds its piece. There may be more programs than pieces."""

    ptr: Tensor  # int64 (n_rows + 1,), the first piece of each row; every row has at least one
    slot_ptr: Tensor  # int64 (n_rows + 1,), the first slot of each row; rows of one piece have none
    row: Tensor  # int64 (n_programs,), the row of each program's piece, or n_rows if it has none
    n_slots: int  # an upper bound, at least 1
    size: int  # edges of a piece, at most

    @property
    def grid(self) -> tuple[int]:
        """A program for each piece."""
        return (self.row.numel(),)

    @property
    def pointers(self) -> tuple[Tensor, Tensor, Tensor]:
        """What :func:`locate` reads."""
        return self.row, self.ptr, self.slot_ptr


def cut_rows(mask: Mask) -> Pieces:
    """Cuts rows into pieces of at most ``PIECE`` edges without waiting for the device. Cost: O(pieces · log rows)."""
    row_ptr, n_edges = mask.row_ptr, mask.keys.numel()
    counts = ((row_ptr.diff() + PIECE - 1) // PIECE).clamp(min=1)
    ptr, slot_ptr = (torch.nn.functional.pad(c.cumsum(0), (1, 0)) for c in (counts, counts * (counts > 1)))
    n_pieces = counts.numel() + n_edges // PIECE
    pieces = torch.arange(n_pieces, device=row_ptr.device)
    row = torch.searchsorted(ptr, pieces, right=True) - 1
    return Pieces(ptr, slot_ptr, row, max(1, 2 * (n_edges // PIECE)), PIECE)


@kernel
def locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE: tl.constexpr):
    """Finds this program's piece: its row (``n_rows`` if it has none), first edge, number of edges, and slot or -1."""
    piece = tl.program_id(0).to(tl.int64)
    row = tl.load(piece_row + piece)
    inside = tl.minimum(row, n_rows - 1)
    number = piece - tl.load(piece_ptr + inside)
    first = tl.load(row_ptr + inside) + number * PIECE
    n_edges = tl.minimum(PIECE, tl.load(row_ptr + inside + 1) - first).to(tl.int32)
    slot = tl.load(slot_ptr + inside)
    has_slots = tl.load(slot_ptr + inside + 1) > slot
    return row, first, n_edges, tl.where(has_slots, slot + number, -1)
