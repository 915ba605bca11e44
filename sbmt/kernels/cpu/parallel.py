"""Runs a kernel over ranges of rows, on as many threads as torch is allowed to use."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

_LEAST_WORK = 1 << 16  # roughly the number of multiplications that is worth waking a thread for
_PARTS_PER_THREAD = 4  # so that a thread that is delayed does not delay the rest


def in_parallel(kernel: Callable[..., Any], bounds: np.ndarray, *arguments: Any) -> list[Any]:
    """``kernel(start, stop, *arguments)`` for every two consecutive bounds, and what each returned.

    These are plain threads rather than numba's own: kernels hold no GIL, a forked child starts afresh, and several
    threads may call this at once.
    """
    ranges = [(int(a), int(b)) for a, b in pairwise(bounds) if a < b]
    if len(ranges) < 2 or torch.get_num_threads() == 1:
        return [kernel(start, stop, *arguments) for start, stop in ranges]
    waiting = iter(ranges)  # next() on it is atomic under the GIL: each thread takes the next one
    done: dict[int, Any] = {}

    def work() -> None:
        for start, stop in waiting:
            done[start] = kernel(start, stop, *arguments)

    others = [_pool().submit(work) for _ in range(min(torch.get_num_threads(), len(ranges)) - 1)]
    work()
    for other in others:
        other.result()
    return [done[start] for start, _ in ranges]


def equal_parts(n: int, work_per_item: int) -> np.ndarray:
    """Bounds of equally long ranges of ``n`` items."""
    parts = _count(n * work_per_item)
    return np.array([0, n]) if parts == 1 else np.linspace(0, n, parts + 1).astype(np.int64)


def balanced_parts(row_ptr: np.ndarray, work_per_edge: int) -> np.ndarray:
    """Bounds of ranges of rows that hold about equally many edges, however uneven the rows."""
    n = row_ptr.size - 1
    parts = _count(int(row_ptr[-1] + n) * work_per_edge)  # an empty row is a little work too
    if parts == 1:
        return np.array([0, n])
    work = row_ptr + np.arange(n + 1)
    inner = np.searchsorted(work, np.linspace(0, work[-1], parts + 1)[1:-1])
    return np.concatenate([[0], inner, [n]])


def _count(work: int) -> int:
    threads = torch.get_num_threads()
    return 1 if threads == 1 else max(1, min(_PARTS_PER_THREAD * threads, work // _LEAST_WORK))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "sbmt")  # threads start when first needed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
