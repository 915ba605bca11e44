"""Suite ``gpu``: one attention on a GPU, by edges and by tiles, against the flash kernel and others' ways."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any

import torch

from sbmt.experiments.benchmarks.cases import KINDS, Case, Setting, build
from sbmt.experiments.benchmarks.conditions import Conditions
from sbmt.experiments.benchmarks.cut_offs import cut_offs
from sbmt.experiments.benchmarks.device import CUDA, give_back, is_alive
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
from sbmt.experiments.benchmarks.gpu_profile import profile_step
from sbmt.experiments.benchmarks.gpu_race import GpuLost, Outcome, Rules, hold_race, outcome_of
from sbmt.experiments.benchmarks.progress import counted
from sbmt.experiments.benchmarks.timing import Pace

EVERY_PAIR = 0.9999  # stands for 100 %: no membership's sigmoid is quite 1
PROFILED = (SPARSE, TILED)


@dataclass(frozen=True)
class GpuGrid:
    """What to measure.

    Attributes:
        sizes: n, in the order in which they are measured, so that little time is spent on what tells most.
        densities: Ascending: who runs out of memory is not tried with denser masks.
        profiled: (n, density) of the profiles.
        pace: Of each race.
        contestants: Who takes part.
        make: From n, density and kind to a setting.
        device: Where.
        dtype: Of query, key and value; the layer stays float32.
    """

    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    profiled: tuple[int, float]
    pace: Pace
    contestants: Mapping[str, GpuContestant] = field(default_factory=lambda: CONTESTANTS)
    make: Callable[[int, float, str], Setting] = setting_at
    device: torch.device = CUDA
    dtype: torch.dtype = torch.bfloat16

    def settings(self) -> list[Setting]:
        """All, the most telling ones first."""
        return [self.make(n, density, kind) for kind in KINDS for n in self.sizes for density in self.densities]

    def case(self, setting: Setting) -> Case:
        """The input for a setting, on the device."""
        return on_device(build(setting), self.device, self.dtype)


FULL = GpuGrid(
    sizes=(4096, 16384, 65536, 8192, 1024),
    densities=(0.001, 0.01, 0.02, 0.1, 0.5, EVERY_PAIR),
    profiled=(16384, 0.01),
    pace=Pace(1.0, 3, 21),
)
QUICK = GpuGrid(
    sizes=(4096, 1024),
    densities=(0.01, 0.1),
    profiled=(4096, 0.01),
    pace=Pace(0.3, 3, 11),
    contestants={name: one for name, one in CONTESTANTS.items() if name != "flex"},  # compiling it takes long
)


def run(grid: GpuGrid, asked: Conditions) -> dict[str, Any]:
    """Measures what ``asked.before`` does not hold, and hands over what there is after each case.

    Returns:
        ``cases`` with an outcome for each contestant; ``profiles`` by contestant; ``cut_offs``; ``left_out``, the cases
        that the time did not suffice for; ``failures``, those that could not be built; ``lost``, the calls in or after
        which the process ended or the GPU did not answer any more; ``trying``, the first call that is being made,
        which is how the next process knows of a crash.
    """
    deadline = None if asked.minutes is None else monotonic() + 60 * asked.minutes
    found = _begin(asked.before)
    settings = grid.settings()
    done = {_key(case) for case in found["cases"] if case["is_training"]}
    try:
        if set(PROFILED) - set(found["profiles"]):
            _take_profiles(grid, found, asked)
        for setting in counted(settings, len(settings), asked.on_case):
            if _key(asdict(setting)) in done:
                continue
            if deadline is not None and monotonic() >= deadline:
                found["left_out"].append(describe(setting))
                continue
            found["cases"] = [case for case in found["cases"] if _key(case) != _key(asdict(setting))]
            _measure_or_note(grid, setting, found, asked)
            found["cut_offs"] = cut_offs(found["cases"])
            asked.on_found(found)
    except GpuLost as lost:
        _note_loss(found, lost.why)
        measured = {_key(case) for case in found["cases"] if case["is_training"]}
        found["left_out"] = [describe(s) for s in settings if _key(asdict(s)) not in measured]
    except (KeyboardInterrupt, SystemExit):
        found["trying"] = None  # it was not the call that ended it
        asked.on_found(found)
        raise
    asked.on_found(found)
    return found


def _begin(before: dict[str, Any] | None) -> dict[str, Any]:
    lists: dict[str, Any] = {name: [] for name in ("cases", "cut_offs", "left_out", "failures", "lost")}
    found: dict[str, Any] = lists | {"profiles": {}, "trying": None} | (before or {}) | {"left_out": [], "failures": []}
    if found["trying"] is not None:
        _note_loss(found, "the process ended during its first call")
    return found


def _note_loss(found: dict[str, Any], why: str) -> None:
    if found["trying"] is not None:
        found["lost"].append(found["trying"] | {"why": why})
        found["trying"] = None


def _take_profiles(grid: GpuGrid, found: dict[str, Any], asked: Conditions) -> None:
    setting = grid.make(*grid.profiled, next(iter(KINDS)))
    case = grid.case(setting)
    for name in PROFILED:
        mine = {"contestant": name, "case": f"profile of {describe(setting)}"}
        if name in found["profiles"] or name not in grid.contestants:
            continue
        losses = [one["why"] for one in found["lost"] if one["case"] == mine["case"] and one["contestant"] == name]
        if losses:
            found["profiles"][name] = {"failed": losses[0]}
            continue
        found["trying"] = mine
        asked.on_found(found)
        profiled = profile_step(grid.contestants[name], case)
        if not is_alive(grid.device):
            raise GpuLost(name, str(profiled.get("failed")))
        found["profiles"][name] = profiled | {"case": describe(setting)}
        found["trying"] = None


def _measure_or_note(grid: GpuGrid, setting: Setting, found: dict[str, Any], asked: Conditions) -> None:
    """Nothing but a lost GPU keeps the cases that follow from being measured."""
    try:
        _measure(grid, setting, found, asked)
        return
    except GpuLost:
        raise
    except Exception as error:
        outcome = outcome_of(error)
    found["trying"] = None
    found["failures"].append({"case": describe(setting)} | outcome)
    if not is_alive(grid.device):
        raise GpuLost("the input", str(outcome))


def _measure(grid: GpuGrid, setting: Setting, found: dict[str, Any], asked: Conditions) -> None:
    case = grid.case(setting)
    with torch.no_grad():
        reached = float(case.block_model().expected_density().mean())
    about = asdict(setting) | {"dtype": str(grid.dtype).removeprefix("torch.")}
    about["expected_density"] = float(f"{reached:.4g}")
    for is_training in (False, True):
        words = f"{describe(setting)}, {'training' if is_training else 'forward'}"

        def trying(name: str | None, words: str = words) -> None:
            found["trying"] = None if name is None else {"contestant": name, "case": words}
            asked.on_found(found)

        barred = {name: _known_outcome(found, name, setting, words) for name in grid.contestants}
        known = {name: outcome for name, outcome in barred.items() if outcome is not None}
        try:
            results = hold_race(case, is_training, Rules(grid.contestants, grid.pace, trying), known)
        except GpuLost as lost:
            trying(lost.contestant)
            raise
        found["cases"].append(about | {"is_training": is_training, "results": results})
    del case
    give_back(grid.device)


def _known_outcome(found: dict[str, Any], name: str, setting: Setting, words: str) -> Outcome | None:
    """What need not be tried: calls that a process was lost in, and inputs larger than ones that were too large.

    What ``auto`` takes may fit where masks are denser, so that it is known from the same input alone.
    """
    for one in found["lost"]:
        if (one["contestant"], one["case"]) == (name, words):
            return {"failed": f"lost the GPU: {one['why']}"}
    for case in found["cases"]:
        outcome = case["results"].get(name, {})
        is_same = case["density"] == setting.density
        is_smaller = (case["kind"], case["n"]) == (setting.kind, setting.n) and case["density"] <= setting.density
        if outcome.get("is_too_large") and is_smaller and (is_same or name != AUTO):
            return outcome if is_same else {"missing": outcome["missing"], "is_too_large": True}
    return None


def _key(case: Mapping[str, Any]) -> tuple[str, int, float]:
    return case["kind"], case["n"], case["density"]
