"""Suite ``memory``: how much memory one training step adds to what a process already holds.

``python -m sbmt.experiments.benchmarks.memory SETTING`` is what runs in a process of its own: one step, two numbers.
"""

import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from sbmt.errors import choose
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, entry
from sbmt.experiments.memory import MEBIBYTE, STEADY, give_back, held, in_fresh_process, reset_peak
from sbmt.experiments.progress import Track, untracked


@dataclass(frozen=True)
class MemoryGrid:
    """What to measure: these contestants, unless an input is too large for them.

    Attributes:
        steps: Where to take a training step.
        answers: Where to run forward only.
        contestants: Who takes part.
    """

    steps: tuple[Setting, ...]
    answers: tuple[Setting, ...] = ()
    contestants: tuple[str, ...] = ("sdpa", "sbm", "pyg", "torch.sparse", "dense")


def _structured(*points: tuple[int, float]) -> tuple[Setting, ...]:
    """Only an input's number of edges affects memory, so that one kind stands for both."""
    return tuple(Setting(n, density, "structured") for n, density in points)


FULL = MemoryGrid(_structured((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)))
QUICK = MemoryGrid(_structured((4096, 0.01)), contestants=("sdpa", "sbm"))
FITTED_FULL = MemoryGrid(
    tuple(fitted_setting(n, 16.0) for n in (4096, 16384, 65536)),
    (fitted_setting(262144, 16.0),),
    ("sdpa", "sbm"),
)
FITTED_QUICK = MemoryGrid((fitted_setting(4096, 16.0),), contestants=("sdpa", "sbm"))


def run(grid: MemoryGrid, track: Track = untracked) -> dict[str, Any]:
    """One step, or answer, of each contestant, each in a fresh process."""
    asked = [(setting, True) for setting in grid.steps] + [(setting, False) for setting in grid.answers]
    jobs = [(*one, name) for one in asked for name in grid.contestants]
    results: dict[tuple[Setting, bool], dict[str, Any]] = {one: {} for one in asked}
    for setting, is_training, name in track(jobs, description="memory"):
        why = CONTESTANTS[name].why_not(setting, is_training)
        found = {"missing": why} if why else measure_in_fresh_process(setting, name, is_training)
        results[setting, is_training][name] = found
    return {
        "cases": [
            asdict(setting) | {"is_training": is_training, "results": found}
            for (setting, is_training), found in results.items()
        ]
    }


def measure_in_fresh_process(setting: Setting, name: str, is_training: bool) -> dict[str, Any]:
    """MiB held ``before`` the step, and added by the ``step`` at its peak; or ``missing`` with the reason."""
    job = asdict(setting) | {"contestant": name, "is_training": is_training, "threads": torch.get_num_threads()}
    found: dict[str, Any] = in_fresh_process("sbmt.experiments.benchmarks.memory", job, STEADY)
    return found


def measure_step(setting: Setting, name: str, is_training: bool) -> dict[str, float]:
    """The same in this process, which should be a fresh one."""
    contestant = choose("contestant", name, CONTESTANTS)
    small = replace(setting, n=128, density=0.04)
    entry(contestant, build(small), is_training).seconds()  # loads kernels and starts thread pools
    step = entry(contestant, build(setting), is_training)
    give_back()
    reset_peak()
    before = held("VmRSS")
    step.seconds()
    peak = held("VmHWM")
    return {"before": round(before / MEBIBYTE, 1), "step": round((peak - before) / MEBIBYTE, 1)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked.pop("threads"))
    chosen, trains = asked.pop("contestant"), asked.pop("is_training")
    print(json.dumps(measure_step(Setting(**asked), chosen, trains)))
