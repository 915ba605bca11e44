"""The parts that a token belongs to: those of its largest logits."""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import power_of_two
from sbmt.kernels.gpu.toolchain import kernel

LEAST = tl.constexpr(-3e38)  # what has been chosen already, and what lies beyond a partition, is less


@kernel
def choose(logits, out, n_rows, n_partitions, SIZE: tl.constexpr, ACTIVE: tl.constexpr, ROWS: tl.constexpr):
    """Writes the numbers of the ``ACTIVE`` largest of each row of ``SIZE`` logits, ascending; the first of equals.

    A row is a token's logits in one partition, and its parts are numbered from ``SIZE`` times the partition on. NaN
    counts as large, so that numbers are valid whatever the logits are.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, power_of_two(SIZE))
    is_there = (rows < n_rows)[:, None] & (columns < SIZE)[None, :]
    left = tl.load(logits + rows[:, None] * SIZE + columns[None, :], is_there, other=0.0)
    left = tl.where(left == left, tl.maximum(left, LEAST), -LEAST)
    left = tl.where((columns < SIZE)[None, :], left, float("-inf"))
    is_chosen = tl.zeros((ROWS, power_of_two(SIZE)), tl.int32)
    for _ in tl.static_range(ACTIVE):
        is_largest = columns[None, :] == tl.argmax(left, 1)[:, None]
        is_chosen += is_largest.to(tl.int32)
        left = tl.where(is_largest, float("-inf"), left)
    places = rows[:, None] * ACTIVE + tl.cumsum(is_chosen, 1) - 1
    numbers = (rows % n_partitions * SIZE)[:, None] + columns[None, :]
    tl.store(out + places, numbers.to(tl.int16), is_there & (is_chosen > 0))
