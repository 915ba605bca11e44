"""Rows of a CSR mask cut into pieces of bounded length, so that no program waits for one long row.

A row that is one piece is written where it belongs. The pieces of a longer row go to slots of their own, and a second
kernel joins them, in order, so that results do not depend on the order in which programs run.
"""

from dataclasses import dataclass

import torch
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.toolchain import kernel
from sbmt.kernels.structures import Mask

PIECE = 512  # edges


@dataclass(frozen=True)
class Pieces:
    """Where each program finds its piece.

    Attributes:
        ptr: int64 ``(n_rows + 1,)``, the first piece of each row, which has at least one.
        slot_ptr: int64 ``(n_rows + 1,)``, the first slot of each row; rows of one piece have none.
        row: int64 ``(n_pieces,)``, the row of each piece; ``n_rows`` for those that the bound has too many.
        n_slots: Bound for the number of slots, at least 1.
        size: Edges of a piece, at most.
    """

    ptr: Tensor
    slot_ptr: Tensor
    row: Tensor
    n_slots: int
    size: int

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
    """Finds this program's piece: its row, its first edge, how many edges it has, and its slot or -1.

    The row is ``n_rows`` if there is nothing to do. Numbers inside a piece take 32 bits.
    """
    piece = tl.program_id(0).to(tl.int64)
    row = tl.load(piece_row + piece)
    inside = tl.minimum(row, n_rows - 1)
    number = piece - tl.load(piece_ptr + inside)
    first = tl.load(row_ptr + inside) + number * PIECE
    n_edges = tl.minimum(PIECE, tl.load(row_ptr + inside + 1) - first).to(tl.int32)
    slot = tl.load(slot_ptr + inside)
    has_slots = tl.load(slot_ptr + inside + 1) > slot
    return row, first, n_edges, tl.where(has_slots, slot + number, -1)
