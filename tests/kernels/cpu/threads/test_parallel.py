"""Parts that threads help themselves to: in order, complete, and safe for whoever calls."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu.threads import parallel
from sbmt.kernels.cpu.threads.parallel import balanced_parts, equal_parts, in_parallel
from sbmt.kernels.cpu.threads.team import _next, openmp
from sbmt.kernels.cpu.toolchain import kernel

ROOT = Path(__file__).parents[4]


@kernel
def count_and_square(start, stop, visits, out, offset):
    for i in range(start, stop):
        visits[i] += 1
        out[i] = i * i + offset


@kernel
def meet(start, stop, here, met, fails):
    """Each part waits until the one half of them away is being worked on, or for a second or so."""
    for part in range(start, stop):
        _next(here, part)
        for n_polls in range(10**8):
            if _next(here, (part + here.size // 2) % here.size) > n_polls:  # somebody else has added to it
                met[part] = True
                break
        if fails[part]:
            raise ZeroDivisionError("of this part")


@pytest.fixture(params=["torch's threads", "plain threads"])
def threads(request, monkeypatch):
    """Either kind of threads; on Linux torch's can always be had."""
    if request.param == "plain threads":
        monkeypatch.setattr(parallel, "openmp", lambda: (0, 0))
    elif not all(openmp()):
        assert sys.platform != "linux"
        pytest.skip("torch's threads cannot be had here")


def squares(n, bounds, offset):
    visits, out = np.zeros(n, np.int64), np.full(n, -1)
    in_parallel(count_and_square, np.asarray(bounds), visits, out, offset)
    return visits, out


@pytest.mark.parametrize("n_threads", [1, 2, 4])
@pytest.mark.parametrize("bounds", [[0, 0, 7, 7, 7, 60, 100, 100], [0], [5, 20, 21], range(101)])
def test_every_row_is_visited_once_and_no_other(bounds, n_threads, threads, set_threads):
    set_threads(n_threads)
    visits, out = squares(100, bounds, 5)
    inside = (np.arange(100) >= bounds[0]) & (np.arange(100) < bounds[-1])
    assert np.array_equal(visits, inside) and np.array_equal(out, np.where(inside, np.arange(100) ** 2 + 5, -1))


def meeting(n_threads, set_threads, fails=(False, False)):
    """Whether each part saw the other."""
    set_threads(n_threads)
    met = np.zeros(len(fails), bool)
    in_parallel(meet, np.arange(met.size + 1), np.zeros(met.size, np.int64), met, np.array(fails))
    return met.tolist()


def test_several_threads_are_used_but_only_the_caller_s_where_there_is_one(threads, set_threads):
    assert meeting(2, set_threads) == [True, True]
    assert meeting(1, set_threads) == [False, True]  # one after the other


def test_each_thread_begins_with_a_share_of_its_own(threads, set_threads):
    """Of four parts, both halves are gone through at once."""
    assert all(meeting(2, set_threads, (False,) * 4))


@pytest.mark.parametrize("fails", [(True, False), (False, True), (True, True)])
def test_an_exception_in_any_thread_reaches_the_caller(fails, threads, set_threads):
    with pytest.raises(ZeroDivisionError, match="of this part"):
        meeting(2, set_threads, fails)
    assert meeting(2, set_threads) == [True, True]  # no thread is left hanging


def test_callers_from_several_threads_do_not_disturb_each_other(threads, set_threads):
    set_threads(3)

    def call(number):
        visits, out = squares(1000, np.linspace(0, 1000, 20).astype(int), number)
        return (visits == 1).all() and np.array_equal(out, np.arange(1000) ** 2 + number)

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(call, range(400)))


def test_a_kernel_may_call_others_in_turn_and_torch_go_on_with_its_threads(threads, set_threads):
    """What starts threads in between does not mind that kernels ran on them, either."""
    set_threads(2)
    x = torch.arange(1 << 20, dtype=torch.float64)
    for _ in range(50):
        visits, _out = squares(1000, range(0, 1001, 100), 0)
        assert (visits == 1).all() and (x + x).sum() == (1 << 20) * ((1 << 20) - 1)


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
    from sbmt.kernels.cpu.threads import parallel
    from sbmt.kernels.cpu.threads.team import openmp

    torch.set_num_threads(2)
    parallel._LEAST_WORK = 1
    ones = torch.ones(2, 1, 40, 1)

    def draw(_=None):
        model = BlockModel(ones, torch.full((1, 1, 1), 0.3), ones)
        edges = sample_edges(model, generator=torch.Generator().manual_seed(0))
        # Nothing else here may use torch's threads, which do not survive a fork.
        has_plain_threads = any(thread.name.startswith("sbmt") for thread in threading.enumerate())
        return os.getpid(), has_plain_threads, edges.row_ptr.tolist(), edges.keys.tolist()

    parent, has_plain_threads, *expected = draw()
    assert has_plain_threads == (not all(openmp()))
    with multiprocessing.get_context("fork").Pool(2) as children:
        for child, has_plain_threads, *found in children.map_async(draw, range(4)).get(timeout=300):
            assert child != parent and has_plain_threads and found == expected
    assert draw() == (parent, not all(openmp()), *expected)
    print("the same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_computes_the_same_and_does_not_hang():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )
    assert done.returncode == 0 and done.stdout.strip() == "the same", done.stderr
