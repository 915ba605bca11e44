"""The suites by name, and what runs them."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import torch

from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.experiments.benchmarks import attention, backends, memory
from sbmt.experiments.benchmarks.manifest import gpu_manifest, machine_manifest
from sbmt.experiments.benchmarks.timing import Pace
from sbmt.experiments.devices import usable_device
from sbmt.experiments.progress import Track, untracked

MOST_THREADS = 1024
ON_GPU = ("attention", "fitted")


def _attention(is_quick: bool, device: torch.device, track: Track) -> dict[str, Any]:
    sweeps = attention.SWEEPS["attention"]
    pace = Pace(0.5, 3) if is_quick else Pace(1.5, 4)
    return attention.run(attention.quick(sweeps) if is_quick else sweeps, attention.CONTESTANTS, pace, device, track)


def _fitted(is_quick: bool, device: torch.device, track: Track) -> dict[str, Any]:
    sweeps = attention.SWEEPS["fitted"]
    sweeps, pace = (attention.quick(sweeps), Pace(0.5, 3)) if is_quick else (sweeps, Pace(2.0, 5))
    found = attention.run(sweeps, attention.FITTED_CONTESTANTS, pace, device, track)
    if device.type == "cpu":
        steps = memory.FITTED_STEPS[: 1 if is_quick else None]
        found["memory"] = memory.run(steps, (attention.REFERENCE, attention.OURS), track)
    return found


def _backends(is_quick: bool, device: torch.device, track: Track) -> dict[str, Any]:
    masks = [mask for mask in backends.MASKS if mask[1] <= 256 or not is_quick]
    return backends.run(masks, Pace(0.1 if is_quick else 0.25, 5, 101), track)


def _memory(is_quick: bool, device: torch.device, track: Track) -> dict[str, Any]:
    return memory.run(memory.STEPS[: 1 if is_quick else None], track=track)


SUITES: dict[str, Callable[[bool, torch.device, Track], dict[str, Any]]] = {
    "attention": _attention,
    "fitted": _fitted,
    "backends": _backends,
    "memory": _memory,
}
"""What measures, given whether that should take only a minute, the device, and ``track``."""


def run_suites(
    names: Sequence[str] = (),
    *,
    is_quick: bool = False,
    threads: int | None = None,
    device: str = "cpu",
    track: Track = untracked,
    on_found: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Runs suites one after the other.

    Args:
        names: Keys of ``SUITES``; none means all of the device, and a GPU has ``attention`` and ``fitted``.
        is_quick: Whether it should take only a minute: fewer cases, fewer rounds.
        threads: Threads of torch and of the compiled kernels; by default torch's own number.
        device: ``"cpu"`` or ``"cuda"``.
        track: Shows progress, such as the method ``track`` of rich's ``Progress``.
        on_found: Called with the result so far after each suite.

    Returns:
        The content of a results file: ``manifest``, ``is_quick``, and ``suites`` by name.
    """
    mine = ON_GPU if device == "cuda" else tuple(SUITES)
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
        result: dict[str, Any] = {"manifest": machine_manifest() | gpu_manifest(usable), "is_quick": is_quick}
        result["suites"] = {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for name in names or mine:
                start = perf_counter()
                found = SUITES[name](is_quick, usable, track)
                result["suites"][name] = {"seconds": round(perf_counter() - start, 1), "found": found}
                on_found(result)
    finally:
        torch.set_num_threads(before)
    return result
