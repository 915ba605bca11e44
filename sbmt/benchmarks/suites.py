"""The suites by name, and how they are run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch

from sbmt.benchmarks import attention, backends, memory, sampler
from sbmt.benchmarks.manifest import machine_manifest
from sbmt.benchmarks.progress import OnCase
from sbmt.benchmarks.tables import Table, attention_tables, backend_tables, memory_tables, sampler_tables
from sbmt.benchmarks.timing import Pace
from sbmt.errors import SbmtError, check_sizes, choose

MOST_THREADS = 1024


@dataclass(frozen=True)
class Suite:
    """One question about speed or memory.

    Attributes:
        run: From whether it should be quick, and whom to tell about progress, to what the results file holds.
        tables: From that to tables.
    """

    run: Callable[[bool, OnCase], dict[str, Any]]
    tables: Callable[[dict[str, Any]], list[Table]]


def _attention(is_quick: bool, on_case: OnCase) -> dict[str, Any]:
    grid, pace = (attention.QUICK, Pace(1.0, 3)) if is_quick else (attention.FULL, Pace(1.5, 4))
    return attention.run(grid, pace, on_case)


def _sampler(is_quick: bool, on_case: OnCase) -> dict[str, Any]:
    grid, pace = (sampler.QUICK, Pace(1.0, 3)) if is_quick else (sampler.FULL, Pace(2.0, 4))
    return sampler.run(grid, pace, on_case)


def _backends(is_quick: bool, on_case: OnCase) -> dict[str, Any]:
    grid, pace = (backends.QUICK, Pace(0.1, 5, 101)) if is_quick else (backends.FULL, Pace(0.25, 5, 101))
    return backends.run(grid, pace, on_case)


def _memory(is_quick: bool, on_case: OnCase) -> dict[str, Any]:
    return memory.run(memory.QUICK if is_quick else memory.FULL, on_case)


SUITES = {
    "attention": Suite(_attention, attention_tables),
    "sampler": Suite(_sampler, sampler_tables),
    "backends": Suite(_backends, backend_tables),
    "memory": Suite(_memory, memory_tables),
}


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    threads: int | None = None,
    on_case: Callable[[str, int, int], None] = lambda name, done, total: None,
    on_suite: Callable[[str, dict[str, Any]], None] = lambda name, result: None,
) -> dict[str, Any]:
    """Runs suites one after the other.

    Args:
        names: Names of suites, see ``SUITES``; none means all.
        is_quick: Whether a minute has to do: fewer cases, fewer rounds.
        threads: Threads of torch and of the compiled kernels; None leaves torch's number.
        on_case: Called with a suite's name, how many of its cases are done, and how many there are.
        on_suite: Called after each suite with its name and the result so far.

    Returns:
        The content of a results file: ``manifest``, ``is_quick``, and ``suites`` by name.

    Raises:
        SbmtError: On an unknown name or ``threads`` below 1.
    """
    chosen = {name: choose("suite", name, SUITES) for name in (names or SUITES)}
    if threads is not None:
        check_sizes(threads=threads)
        if threads > MOST_THREADS:
            raise SbmtError(f"at most {MOST_THREADS} threads", threads, "more than there are cores only wait")
    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result: dict[str, Any] = {"manifest": machine_manifest(), "is_quick": is_quick, "suites": {}}
        for name, suite in chosen.items():
            start = perf_counter()
            found = suite.run(is_quick, partial(on_case, name))
            result["suites"][name] = {"seconds": round(perf_counter() - start, 1), "found": found}
            on_suite(name, result)
    return result


def tables_of(result: dict[str, Any], names: Sequence[str] | None = None) -> list[Table]:
    """The tables of a results file, or of some of its suites.

    Raises:
        SbmtError: If it holds an unknown suite.
    """
    suites = {name: one["found"] for name, one in result["suites"].items() if names is None or name in names}
    return [table for name, found in suites.items() for table in choose("suite", name, SUITES).tables(found)]


@contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
