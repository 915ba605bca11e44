"""The suites by name, and what runs them."""

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch

from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.benchmarks import attention, backends, memory, sampler, tables
from sbmt.experiments.benchmarks.manifest import gpu_manifest, machine_manifest
from sbmt.experiments.devices import usable_device
from sbmt.experiments.progress import Track, untracked
from sbmt.experiments.tables import Table

MOST_THREADS = 1024
OnFound = Callable[[dict[str, Any]], None]


def _attention(grid: attention.Grid, is_quick: bool, track: Track, on_found: OnFound) -> dict[str, Any]:
    return attention.run(grid.quick() if is_quick else grid, track, on_found)


def _fitted(is_quick: bool, track: Track, on_found: OnFound) -> dict[str, Any]:
    grids = [grid.quick() if is_quick else grid for grid in (attention.FITTED, attention.HALF)]
    found, half = (attention.run(grid, track) for grid in grids)
    memories = memory.run(track, **(memory.FITTED_QUICK if is_quick else memory.FITTED_FULL))
    return found | {"cases": found["cases"] + half["cases"], "memory": memories}


def _plain(module: Any, is_quick: bool, track: Track, on_found: OnFound) -> dict[str, Any]:
    found: dict[str, Any] = module.run(track, **(module.QUICK if is_quick else module.FULL))
    return found


SUITES: dict[str, Callable[[bool, Track, OnFound], dict[str, Any]]] = {
    "attention": lambda *given: _attention(attention.ATTENTION, *given),
    "fitted": _fitted,
    "sampler": partial(_plain, sampler),
    "backends": partial(_plain, backends),
    "memory": partial(_plain, memory),
    "gpu": lambda *given: _attention(attention.GPU, *given),
}
"""What measures, given whether that should take only a minute, ``track``, and what takes parts of the findings."""

TABLES: dict[str, Callable[[dict[str, Any]], list[Table]]] = {
    "attention": tables.attention_tables,
    "fitted": tables.fitted_tables,
    "sampler": tables.sampler_tables,
    "backends": tables.backend_tables,
    "memory": tables.memory_tables,
    "gpu": tables.gpu_tables,
}


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    track: Track = untracked,
    on_found: OnFound = lambda result: None,
) -> dict[str, Any]:
    """Runs suites one after the other.

    Args:
        names: Names of suites, see ``SUITES``; none means all of the device.
        is_quick: Whether it should take only a minute: fewer cases, fewer rounds.
        threads: Threads of torch and of the compiled kernels; by default torch's own number.
        device: ``"cpu"``, or ``"cuda"``, which has the suite ``gpu`` alone.
        track: Shows progress, such as the method ``track`` of rich's ``Progress``.
        on_found: Called with the result so far after each suite, and within those that take long after each setting.

    Returns:
        The content of a results file: ``manifest``, ``is_quick``, and ``suites`` by name.

    Raises:
        SbmtError: On an unknown name, a suite of another device, a missing device, or impossible ``threads``.
    """
    mine = [name for name in SUITES if (name == "gpu") == (device == "cuda")]
    for name in names:
        choose("suite", name, SUITES)
        if name not in mine:
            raise SbmtError(f"a suite of --device {device}, among {', '.join(mine)}", name, "change one of them")
    before = torch.get_num_threads()
    threads = before if threads is None else threads
    check_sizes(threads=threads)
    if threads > MOST_THREADS:
        raise SbmtError(f"at most {MOST_THREADS} threads", threads, "more than there are cores only wait")
    usable = usable_device(device)
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            result: dict[str, Any] = {"manifest": machine_manifest() | gpu_manifest(usable), "is_quick": is_quick}
            result["suites"] = {}
            for name in names or mine:
                _run(result, name, is_quick, track, on_found)
    finally:
        torch.set_num_threads(before)
    return result


def _run(result: dict[str, Any], name: str, is_quick: bool, track: Track, on_found: OnFound) -> None:
    start = perf_counter()

    def keep(found: dict[str, Any]) -> None:
        result["suites"][name] = {"seconds": round(perf_counter() - start, 1), "found": found}
        on_found(result)

    keep(SUITES[name](is_quick, track, keep))


def tables_of(result: dict[str, Any]) -> list[Table]:
    """The tables of a results file.

    Raises:
        SbmtError: If it holds an unknown suite.
    """
    return [table for name, one in result["suites"].items() for table in choose("suite", name, TABLES)(one["found"])]
