"""The distinct ones of a row's keys, in ascending order: a few are sorted in registers, many go through a bitmap."""

import numpy as np

from sbmt.kernels.cpu.toolchain import inlined, kernel
from sbmt.kernels.cpu.vectors.sorting import sort_few

FEW = 128  # up to this many numbers are sorted in registers


@kernel
def new_bitmap(n_numbers):
    """Room for :func:`sort_distinct` of numbers below ``n_numbers``: a bit for each, which is 0 between calls."""
    return np.zeros((n_numbers + 63) // 64, np.uint64)


@inlined
def sort_distinct(numbers, start, stop, bitmap, out):
    """Writes the distinct ones of numbers[start:stop], ascending, and returns how many there are.

    ``numbers`` holds :data:`FEW` from there on, whatever the rest are.
    """
    count = stop - start
    return sort_few(32, numbers, start, count, out) if count <= 32 else _more(numbers, start, count, bitmap, out)


@kernel
def _more(numbers, start, count, bitmap, out):
    if count <= 64:
        return sort_few(64, numbers, start, count, out)
    if count <= FEW:
        return sort_few(FEW, numbers, start, count, out)
    return _through_bitmap(numbers[start : start + count], bitmap, out)


@kernel
def _through_bitmap(found, bitmap, out):
    for i in range(found.shape[0]):
        j = found[i]
        bitmap[j >> 6] |= np.uint64(1) << np.uint64(j & 63)
    distinct = 0
    for w in range(bitmap.shape[0]):
        bits = bitmap[w]
        bitmap[w] = 0
        while bits:
            lowest = bits & (~bits + np.uint64(1))
            bits ^= lowest
            out[distinct] = w * 64 + (np.int64(np.float64(lowest).view(np.int64)) >> 52) - 1023  # its exponent
            distinct += 1
    return distinct
