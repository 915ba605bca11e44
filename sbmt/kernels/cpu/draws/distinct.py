"""The distinct ones of a row's keys, in ascending order: a few are ranked, many go through a bitmap."""

from typing import NamedTuple

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.search import RANKED, rank
from sbmt.kernels.cpu.toolchain import inlined, kernel

_FEW = 96  # up to this many numbers are sorted by counting those below each: quadratic, but vectorised


class Sorting(NamedTuple):
    """Room for one row at a time, since asking for room takes as long as sorting a few numbers."""

    bitmap: np.ndarray  # uint64, a bit for every number that may occur; 0 between rows
    rank: np.ndarray  # int32
    ordered: np.ndarray  # int32, -1 between rows


@kernel
def new_sorting(n_numbers):
    """Room for sorting numbers below ``n_numbers``."""
    ordered = np.full(_FEW, -1, np.int32)
    return Sorting(np.zeros((n_numbers + 63) // 64, np.uint64), np.empty(_FEW + RANKED, np.int32), ordered)


@inlined
def sort_distinct(numbers, start, stop, sorting, out):
    """Writes the distinct ones of numbers[start:stop], ascending, and returns how many there are.

    ``numbers`` holds :data:`~sbmt.kernels.cpu.search.RANKED` more, whatever they are.
    """
    count = stop - start
    if count > min(_FEW, out.shape[0]):
        return _through_bitmap(numbers[start:stop], sorting.bitmap, out)
    ordered, distinct = sorting.ordered, 0
    for first in range(0, count, RANKED):
        rank(numbers, start, count, first, sorting.rank)
    for i in range(uint64(count)):
        ordered[uint64(sorting.rank[i])] = numbers[uint64(start) + i]  # equal ones meet, and leave places behind empty
    for i in range(uint64(count)):
        number, ordered[i] = ordered[i], np.int32(-1)
        out[distinct] = number
        distinct += number >= 0
    return distinct


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
