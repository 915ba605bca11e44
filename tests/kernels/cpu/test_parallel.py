"""Parts that threads help themselves to: in order, complete, and safe for whoever calls."""

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu.parallel import balanced_parts, equal_parts, in_parallel

ROOT = Path(__file__).parents[3]


def square(start, stop, out, offset):
    out[start:stop] = np.arange(start, stop) ** 2 + offset
    return start, stop


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("bounds", [[0, 0, 7, 7, 7, 60, 100, 100], [0], [5, 20, 21], range(101)])
def test_results_come_in_order_and_every_row_is_visited(bounds, n_threads, set_threads):
    set_threads(n_threads)
    out = np.full(100, -1)
    results = in_parallel(square, np.asarray(bounds), out, 5)
    assert results == [(a, b) for a, b in pairwise(bounds) if a < b]
    inside = slice(bounds[0], bounds[-1])
    assert np.array_equal(out[inside], np.arange(100)[inside] ** 2 + 5)
    out[inside] = -1
    assert (out == -1).all()


def test_several_threads_are_used_but_only_the_caller_s_where_there_is_one(set_threads):
    """Each part waits for the others, which one thread alone could not."""
    set_threads(2)
    both = threading.Barrier(2, timeout=60)
    assert sorted(in_parallel(lambda start, stop: both.wait(), np.arange(3))) == [0, 1]
    set_threads(1)
    names = in_parallel(lambda start, stop: threading.current_thread(), np.arange(50))
    assert set(names) == {threading.current_thread()}


def test_an_exception_in_another_thread_reaches_the_caller_too(set_threads):
    set_threads(2)
    caller, both = threading.current_thread(), threading.Barrier(2, timeout=60)

    def fail_elsewhere(start, stop):
        both.wait()  # each thread has a part
        if threading.current_thread() is not caller:
            raise ZeroDivisionError("elsewhere")

    with pytest.raises(ZeroDivisionError, match="elsewhere"):
        in_parallel(fail_elsewhere, np.arange(3))
    assert in_parallel(lambda start, stop: start, np.arange(5)) == [0, 1, 2, 3]  # no thread is left hanging


def test_callers_from_several_threads_do_not_disturb_each_other(set_threads):
    set_threads(3)

    def call(number):
        out = np.full(1000, -1)
        bounds = np.linspace(0, 1000, 20).astype(int)
        results = [in_parallel(square, bounds, out, number) for _ in range(10)]
        assert results == [list(pairwise(bounds))] * 10
        return np.array_equal(out, np.arange(1000) ** 2 + number)

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(call, range(40)))


row_sizes = st.lists(st.one_of(st.integers(0, 3), st.sampled_from([0, 0, 10_000, 10**7])), min_size=1, max_size=60)


@given(row_sizes, st.integers(1, 10**6), st.integers(1, 4))
def test_parts_cover_all_rows_in_order(sizes, work, n_threads):
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        for bounds in (balanced_parts(pointer(sizes), work), equal_parts(len(sizes), work)):
            assert bounds[0] == 0 and bounds[-1] == len(sizes) and (np.diff(bounds) >= 0).all()
            assert np.issubdtype(bounds.dtype, np.integer)
            assert n_threads > 1 or len(bounds) == 2
    finally:
        torch.set_num_threads(before)


def pointer(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def test_balanced_parts_share_the_edges_evenly_and_little_work_wakes_nobody(set_threads):
    """No part holds much more than its share, unless a single row does; then the other rows are left to other parts."""
    set_threads(4)
    sizes = np.where(np.arange(1000) == 500, 10**7, 1)
    bounds = balanced_parts(pointer(sizes), 32)
    giant = np.searchsorted(bounds, 500, side="right") - 1
    assert len(bounds) > 3 and bounds[giant + 1] - bounds[giant] < 1000
    sizes = np.random.default_rng(0).integers(0, 1000, 5000)
    edges = np.diff(pointer(sizes)[balanced_parts(pointer(sizes), 64)])
    assert len(edges) > 4 and edges.max() <= edges.sum() / len(edges) + len(sizes) + sizes.max()
    assert len(balanced_parts(pointer([3, 0, 5]), 8)) == 2 and len(equal_parts(10, 10)) == 2


FORK = """
    import multiprocessing, os, threading
    import torch
    from sbmt import BlockModel, sample_edges
    from sbmt.kernels.cpu import parallel

    torch.set_num_threads(2)
    parallel._LEAST_WORK = 1
    ones = torch.ones(2, 1, 40, 1)

    def draw(_=None):
        model = BlockModel(ones, torch.full((1, 1, 1), 0.3), ones)
        edges = sample_edges(model, generator=torch.Generator().manual_seed(0))
        # Nothing here may use torch's own threads, which do not survive a fork.
        is_shared = any(thread.name.startswith("sbmt") for thread in threading.enumerate())
        return os.getpid(), is_shared, edges.row_ptr.tolist(), edges.keys.tolist()

    parent, is_shared, *expected = draw()
    assert is_shared
    with multiprocessing.get_context("fork").Pool(2) as children:
        for child, is_shared, *found in children.map_async(draw, range(4)).get(timeout=300):
            assert child != parent and is_shared and found == expected
    assert draw() == (parent, True, *expected)
    print("the same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_computes_the_same_and_does_not_hang():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0 and done.stdout.strip() == "the same", done.stderr
