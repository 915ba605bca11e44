"""The suites by name, and what runs them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import Any

import torch

from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.benchmarks import attention, backends, memory, sampler
from sbmt.experiments.benchmarks.manifest import gpu_manifest, machine_manifest
from sbmt.experiments.benchmarks.tables import (
    attention_tables,
    backend_tables,
    fitted_tables,
    gpu_tables,
    memory_tables,
    sampler_tables,
)
from sbmt.experiments.devices import DEVICES, usable_device
from sbmt.experiments.progress import Track, untracked
from sbmt.experiments.tables import Table

MOST_THREADS = 1024


@dataclass(frozen=True)
class Suite:
    """One question about speed or memory.

    Attributes:
        run: Measures, given whether that should take only a minute, ``track``, and for suites on a GPU ``minutes``,
            ``before`` and ``on_found`` (see :func:`run_suites`); returns what the results file holds.
        tables: Makes tables of that.
        device: The device on which it runs.
    """

    run: Callable[..., dict[str, Any]]
    tables: Callable[[dict[str, Any]], list[Table]]
    device: str = "cpu"


def _suite(module: Any, tables: Callable[[dict[str, Any]], list[Table]]) -> Suite:
    def run(is_quick: bool, track: Track) -> dict[str, Any]:
        found: dict[str, Any] = module.run(module.QUICK if is_quick else module.FULL, track)
        return found

    return Suite(run, tables)


def _fitted(is_quick: bool, track: Track) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for grid in attention.FITTED_QUICK if is_quick else attention.FITTED_FULL:
        found = attention.run(grid, track, before=found)
    return found | {"memory": memory.run(memory.FITTED_QUICK if is_quick else memory.FITTED_FULL, track)}


def _gpu(is_quick: bool, track: Track, **resumable: Any) -> dict[str, Any]:
    return attention.run(attention.GPU_QUICK if is_quick else attention.GPU_FULL, track, **resumable)


SUITES = {
    "attention": _suite(attention, attention_tables),
    "fitted": Suite(_fitted, fitted_tables),
    "sampler": _suite(sampler, sampler_tables),
    "backends": _suite(backends, backend_tables),
    "memory": _suite(memory, memory_tables),
    "gpu": Suite(_gpu, gpu_tables, "cuda"),
}


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    minutes: float | None = None,
    before: dict[str, Any] | None = None,
    track: Track = untracked,
    on_found: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Runs suites one after the other.

    Args:
        names: Names of suites, see ``SUITES``; none means all of the device.
        is_quick: Whether it should take only a minute: fewer cases, fewer rounds.
        threads: Threads of torch and of the compiled kernels; by default torch's own number.
        device: ``"cpu"`` or ``"cuda"``.
        minutes: Suites on a GPU begin no further setting after this time; None is no limit.
        before: The content of a results file of suites on a GPU, to be continued.
        track: Shows progress, such as the method ``track`` of rich's ``Progress``.
        on_found: Called with the result so far after each suite, and after each setting of a suite on a GPU.

    Returns:
        The content of a results file: ``manifest``, ``is_quick``, and ``suites`` by name.

    Raises:
        SbmtError: On an unknown name, a suite of another device, a missing device, ``threads`` below 1, a time that is
            not positive, or an earlier result that was measured otherwise.
    """
    chosen = _choose(names, device)
    _check(threads, device, minutes, before)
    usable = usable_device(device)
    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result: dict[str, Any] = {"manifest": machine_manifest() | gpu_manifest(usable)}
        result |= {"is_quick": is_quick, "suites": {}}
        if before is not None:
            _check_same(before, result)
        for name, suite in chosen.items():
            start = perf_counter()
            earlier = (before or {"suites": {}})["suites"].get(name, {"seconds": 0.0, "found": None})

            def keep(found: dict[str, Any], name: str = name, start: float = start, earlier: Any = earlier) -> None:
                seconds = round(earlier["seconds"] + perf_counter() - start, 1)
                result["suites"][name] = {"seconds": seconds, "found": found}
                on_found(result)

            resumable = {"minutes": minutes or inf, "before": earlier["found"], "on_found": keep}
            keep(suite.run(is_quick, track, **resumable if suite.device == "cuda" else {}))
    return result


def _choose(names: Sequence[str], device: str) -> dict[str, Suite]:
    choose("device", device, DEVICES)
    chosen = {name: choose("suite", name, SUITES) for name in names}
    for name, suite in chosen.items():
        if suite.device != device:
            raise SbmtError(f"--device {suite.device} for the suite {name}", device, "choose one that fits the other")
    return chosen or {name: suite for name, suite in SUITES.items() if suite.device == device}


def _check(threads: int | None, device: str, minutes: float | None, before: object) -> None:
    if threads is not None:
        check_sizes(threads=threads)
        if threads > MOST_THREADS:
            raise SbmtError(f"at most {MOST_THREADS} threads", threads, "more than there are cores only wait")
    if device == "cpu" and (minutes, before) != (None, None):
        raise SbmtError("--minutes and --resume with --device cuda alone", device, "leave them out")
    if minutes is not None and not 0 < minutes < inf:
        raise SbmtError("minutes > 0", minutes, "give each case some time")


def _check_same(before: dict[str, Any], result: dict[str, Any]) -> None:
    """Refuses to continue what was measured otherwise, or on another machine."""
    try:
        earlier, now = (
            [one["is_quick"], *(one["manifest"].get(name) for name in ("gpu", "torch", "triton"))]
            for one in (before, result)
        )
        is_result = isinstance(before["suites"], dict)
    except (KeyError, TypeError, AttributeError) as error:
        raise SbmtError("a results file of sbmt bench", f"another one ({error!r})", "name another file") from error
    if earlier != now or not is_result:
        raise SbmtError(f"results of {now} to go on from", earlier, "name another file, or leave --resume out")


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
