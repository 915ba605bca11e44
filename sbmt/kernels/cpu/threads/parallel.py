"""Runs a kernel over ranges of rows, on as many threads as torch is allowed to use."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch

from sbmt.kernels.cpu.threads.team import launcher, openmp
from sbmt.kernels.cpu.toolchain import kernel

_LEAST_WORK = 1 << 16  # roughly the number of multiplications that is worth waking a thread for
_PARTS_PER_THREAD = 4  # so that a thread that is delayed does not delay the rest
_is_forked = False


def in_parallel(kernel: Callable[..., Any], bounds: np.ndarray, *arguments: Any) -> None:
    """``kernel(start, stop, *arguments)`` for every two consecutive bounds, at most as many at once as torch may.

    Each thread begins with a share of its own, see :func:`~sbmt.kernels.cpu.threads.team.launcher`. The threads are
    torch's own where they can be had, and plain ones elsewhere: kernels hold no GIL. Several threads may call this at
    once, and so may a forked child, where torch's threads are gone.
    """
    launch, n_ranges = launcher(kernel), len(bounds) - 1
    n_threads = 1 if n_ranges == 1 else torch.get_num_threads()
    shares = _starts(n_ranges, n_threads)
    if n_threads == 1 or _is_forked or not all(openmp()):
        job = shares.copy(), bounds, arguments
        others = [_pool().submit(launch, (0, 0), thread, *job) for thread in range(1, n_threads)]
        launch((0, 0), 0, *job)
        for other in others:
            other.result()
    else:
        launch(openmp(), 0, shares, bounds, arguments)


def equal_parts(n: int, work_per_item: int) -> np.ndarray:
    """Bounds of equally long ranges of ``n`` items."""
    return _equal_bounds(n, _count(n * work_per_item))


@lru_cache(1024)
def _equal_bounds(n: int, parts: int) -> np.ndarray:
    return np.arange(parts + 1) * n // parts  # nobody changes them


@lru_cache(1024)
def _starts(n: int, parts: int) -> np.ndarray:
    return _equal_bounds(n, parts)[:-1]


def balanced_parts(row_ptr: np.ndarray, work_per_edge: int) -> np.ndarray:
    """Bounds of ranges of rows that hold about equally many edges, however uneven the rows."""
    work = int(row_ptr[-1]) + row_ptr.size - 1  # an empty row is a little work too
    return _divide(row_ptr, work, _count(work * work_per_edge))


@kernel
def _divide(row_ptr, work, parts):
    """Each bound is the first row before which there is as much work as its part of all."""
    bounds = np.zeros(parts + 1, np.int64)
    for part in range(1, parts + 1):
        low, high = bounds[part - 1], row_ptr.size - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if row_ptr[middle] + middle < work * part // parts else (low, middle)
        bounds[part] = low
    return bounds


def _count(work: int) -> int:
    threads = torch.get_num_threads()
    return 1 if threads == 1 else max(1, min(_PARTS_PER_THREAD * threads, work // _LEAST_WORK))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "sbmt")  # threads start when first needed


def _after_fork() -> None:
    global _is_forked
    _is_forked = True
    _pool.cache_clear()  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
