"""Suite ``gpu``: one attention on a GPU, along edges and over tiles, against the flash kernel and other libraries."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic, perf_counter
from typing import Any

import torch

from sbmt.command import is_out_of_memory
from sbmt.errors import SbmtError
from sbmt.experiments.benchmarks.cases import KINDS, Case, Setting, build
from sbmt.experiments.benchmarks.contestants import REFERENCE, entry
from sbmt.experiments.benchmarks.gpu_contestants import (
    AUTO,
    CONTESTANTS,
    SPARSE,
    TILED,
    GpuContestant,
    describe,
    on_device,
    setting_at,
)
from sbmt.experiments.benchmarks.progress import Conditions, counted
from sbmt.experiments.benchmarks.timing import Entry, Pace, race

CUDA = torch.device("cuda")
EVERY_PAIR = 0.9999  # stands for 100 %: the sigmoid of a membership is never quite 1
MOST_SECONDS = 5.0  # contestants that take longer for one call do not join the race

Outcome = dict[str, Any]
"""A summary with the call's ``peak`` of memory in MiB; or ``missing`` and why; or ``failed`` and how."""


@dataclass(frozen=True)
class GpuGrid:
    """What to measure.

    Attributes:
        sizes: n, the most telling ones first, since time may run out.
        densities: In ascending order: a contestant that runs out of memory is not tried with denser masks.
        pace: Pace of each race.
        contestants: Who takes part.
        make: Makes a setting of n, density and kind.
        device: Where to measure.
        dtype: Type of query, key and value; the layer stays float32.
    """

    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    pace: Pace
    contestants: Mapping[str, GpuContestant] = field(default_factory=lambda: CONTESTANTS)
    make: Callable[[int, float, str], Setting] = setting_at
    device: torch.device = CUDA
    dtype: torch.dtype = torch.bfloat16

    def settings(self) -> list[Setting]:
        """All settings, the most telling ones first."""
        return [self.make(n, density, kind) for kind in KINDS for n in self.sizes for density in self.densities]


FULL = GpuGrid((4096, 16384, 65536, 8192, 1024), (0.001, 0.01, 0.02, 0.1, 0.5, EVERY_PAIR), Pace(1.0, 3, 21))
QUICK = GpuGrid(
    sizes=(4096, 1024),
    densities=(0.01, 0.1),
    pace=Pace(0.3, 3, 11),
    contestants={name: one for name, one in CONTESTANTS.items() if name != "flex"},  # compiling it takes too long
)


def run(grid: GpuGrid, asked: Conditions) -> dict[str, Any]:
    """Measures what ``asked.before`` does not hold yet.

    Returns:
        ``cases`` with an outcome for each contestant; ``left_out``, the settings for which there was no time; and
        ``failures``, those that could not be built.

    Raises:
        SbmtError: If a call left the GPU unusable. What was found until then has been handed over.
    """
    deadline = None if asked.minutes is None else monotonic() + 60 * asked.minutes
    earlier = (asked.before or {"cases": []})["cases"]
    found: dict[str, Any] = {"cases": list(earlier), "left_out": [], "failures": []}
    done = {(*_input(case), case["density"], case["is_training"]) for case in found["cases"]}
    settings = grid.settings()
    for setting in counted(settings, len(settings), asked.on_case):
        ways = [way for way in (False, True) if (*_input(asdict(setting)), setting.density, way) not in done]
        if ways and deadline is not None and monotonic() >= deadline:
            found["left_out"].append(describe(setting))
        elif ways:
            _measure(grid, setting, ways, found, asked)
    asked.on_found(found)
    return found


def _measure(grid: GpuGrid, setting: Setting, ways: list[bool], found: dict[str, Any], asked: Conditions) -> None:
    try:
        case = on_device(build(setting), grid.device, grid.dtype)
        with torch.no_grad():
            reached = float(case.block_model().expected_density().mean())
    except Exception as error:
        found["failures"].append({"case": describe(setting)} | outcome_of(error))
        return
    about = asdict(setting) | {"dtype": str(grid.dtype).removeprefix("torch.")}
    about["expected_density"] = float(f"{reached:.4g}")
    for is_training in ways:
        results = compare(case, is_training, grid, _too_large(found["cases"], setting))
        found["cases"].append(about | {"is_training": is_training, "results": results})
        asked.on_found(found)
        if not is_alive(grid.device):
            raise SbmtError("a GPU that answers", f"none after {describe(setting)}", "run it again with --resume")
    del case
    give_back(grid.device)


def compare(case: Case, is_training: bool, grid: GpuGrid, known: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """An outcome for every contestant.

    Each contestant makes a call that does not count and one whose memory is measured; those that succeed then take
    turns. Ratios are to :data:`REFERENCE`; without it there are only times.

    Args:
        case: The input, on the device.
        is_training: Whether gradients are taken, too.
        grid: Contestants and pace.
        known: Outcomes of contestants that need not be tried.
    """
    found: dict[str, Outcome] = dict(known)
    entries: dict[str, Entry] = {}
    room = torch.cuda.get_device_properties(grid.device).total_memory if grid.device.type == "cuda" else None
    for name, contestant in grid.contestants.items():
        if name in found:
            continue
        why = contestant.why_not(case.setting, is_training) or contestant.why_too_large(case.setting, room)
        if why is not None:
            found[name] = {"missing": why}
            continue
        first = entry(contestant, case, is_training)
        found[name] = _first_calls(first)
        if set(found[name]) == {"peak"}:
            entries[name] = first
        elif is_alive(grid.device):
            give_back(grid.device)
    if entries:
        _race(entries, grid.pace, found)
    return {name: found[name] for name in grid.contestants}


def _first_calls(first: Entry) -> Outcome:
    try:
        first.seconds()
        start = perf_counter()
        peak = mebibytes_added(first.seconds, first.device)
        seconds = perf_counter() - start
    except Exception as error:  # whatever a contestant raises is the finding, and the others go on
        return outcome_of(error)
    if seconds > MOST_SECONDS:
        return {"missing": f"one call takes more than {MOST_SECONDS:g} s", "is_too_large": True, "peak": peak}
    return {"peak": peak}


def _race(entries: dict[str, Entry], pace: Pace, found: dict[str, Outcome]) -> None:
    """Adds times and ratios to what was found of the first calls."""
    reference = REFERENCE if REFERENCE in entries else next(iter(entries))
    try:
        raced = race(entries, pace, reference=reference, headline=tuple({SPARSE, TILED} & set(entries)))
    except Exception as error:  # one of them fails that succeeded twice before
        message = (str(error).strip() or "no message").splitlines()[0]
        found |= {name: {"failed": f"{type(error).__name__} in the race: {message[:160]}"} for name in entries}
        return
    for name, one in raced.items():
        is_kept = reference == REFERENCE
        found[name] = {key: value for key, value in one.items() if is_kept or "ratio" not in key} | found[name]


def outcome_of(error: Exception) -> Outcome:
    """``missing`` if memory ran out, ``failed`` otherwise."""
    lines = (str(error).strip() or "no message").splitlines()
    message = " … ".join(dict.fromkeys((lines[0][:160], lines[-1][:160])))  # compilers put the reason last
    if is_out_of_memory(error):
        return {"missing": "out of memory", "is_too_large": True, "message": message}
    return {"failed": f"{type(error).__name__}: {message}"}


def _too_large(cases: list[dict[str, Any]], setting: Setting) -> dict[str, Outcome]:
    """Contestants for which an input as large as this one, or a sparser one, was too large.

    ``auto`` takes another way where masks are denser, and may fit again.
    """
    found = {}
    for case in cases:
        if _input(case) == _input(asdict(setting)) and case["density"] <= setting.density:
            for name, outcome in case["results"].items():
                if outcome.get("is_too_large") and (name != AUTO or case["density"] == setting.density):
                    found[name] = {"missing": outcome["missing"], "is_too_large": True}
    return found


def _input(case: Mapping[str, Any]) -> tuple[str, int]:
    return case["kind"], case["n"]


def mebibytes_added(call: Callable[[], object], device: torch.device) -> float | None:
    """Calls, and returns how much GPU memory that took at its peak beyond what was held before."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return round((torch.cuda.max_memory_allocated(device) - before) / 2**20, 1)


def give_back(device: torch.device) -> None:
    """Frees the GPU memory that failed calls and earlier cases have left behind."""
    gc.collect(1)  # what they left is young; a full collection takes longer than many a race
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_alive(device: torch.device) -> bool:
    """Whether the device still computes: after an illegal memory access it does not, in this process."""
    try:
        return torch.ones(2, device=device).sum().item() == 2
    except RuntimeError:
        return False
