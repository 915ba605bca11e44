"""Sorting a row's keys and merging those that came twice."""

import numpy as np

from sbmt.kernels.cpu.toolchain import kernel

_FEW = 96  # so many are sorted by counting, for each, those below it: quadratic, but vectorised


@kernel
def sort_distinct(found, bitmap, out):
    """The distinct numbers of ``found`` in ascending order; returns how many.

    ``bitmap`` has a bit for every number that may come, and is zero before and after.
    """
    if found.shape[0] > min(_FEW, out.shape[0]):
        return _through_bitmap(found, bitmap, out)
    count = found.shape[0]
    for i in range(count):
        out[i] = -1
    for i in range(count):
        here, rank = found[i], np.int32(0)
        for other in range(count):
            rank += np.int32(found[other] < here)
        out[rank] = here  # equal numbers meet here, and leave the places after it empty
    distinct = 0
    for i in range(count):
        here = out[i]
        out[distinct] = here
        distinct += here >= 0
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
