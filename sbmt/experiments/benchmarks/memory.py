"""Suite ``memory``: how much memory one training step adds to what a process already holds.

``python -m sbmt.experiments.benchmarks.memory SETTING`` is what runs in a process of its own: one step, two numbers.
"""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch

from sbmt.cost.memory import MEBIBYTE, give_back, held, in_fresh_process, reset_peak
from sbmt.errors import choose
from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, entry
from sbmt.experiments.progress import Track, untracked


@dataclass(frozen=True)
class MemoryGrid:
    """What to measure: these points (n, density), and these contestants unless an input is too large for them."""

    targets: tuple[tuple[int, float], ...]
    contestants: tuple[str, ...] = ("sdpa", "sbm", "pyg", "torch.sparse", "dense")


FULL = MemoryGrid(((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005)))
QUICK = MemoryGrid(((4096, 0.01),), ("sdpa", "sbm"))


def run(grid: MemoryGrid, track: Track = untracked) -> dict[str, Any]:
    """One step of each contestant, each in a fresh process; only an input's number of edges affects memory."""
    settings = [Setting(n, density, "structured") for n, density in grid.targets]
    pairs = [(setting, name) for setting in settings for name in grid.contestants]
    results: dict[Setting, dict[str, Any]] = {setting: {} for setting in settings}
    for setting, name in track(pairs, description="memory"):
        why = CONTESTANTS[name].why_not(setting, is_training=True)
        results[setting][name] = {"missing": why} if why else measure_in_fresh_process(setting, name)
    return {"cases": [asdict(setting) | {"results": found} for setting, found in results.items()]}


def measure_in_fresh_process(setting: Setting, name: str) -> dict[str, Any]:
    """MiB held ``before`` the step, and added by the ``step`` at its peak; or ``missing`` with the reason."""
    job = asdict(setting) | {"contestant": name, "threads": torch.get_num_threads()}
    found: dict[str, Any] = in_fresh_process("sbmt.experiments.benchmarks.memory", job)
    return found


def measure_step(setting: Setting, name: str) -> dict[str, float]:
    """The same in this process, which should be a fresh one."""
    contestant = choose("contestant", name, CONTESTANTS)
    small = Setting(128, 0.04, setting.kind, setting.n_clusters, setting.n_heads, setting.d_head)
    entry(contestant, build(small), is_training=True).seconds()  # loads kernels and starts thread pools
    step = entry(contestant, build(setting), is_training=True)
    give_back()
    reset_peak()
    before = held("VmRSS")
    step.seconds()
    peak = held("VmHWM")
    return {"before": round(before / MEBIBYTE, 1), "step": round((peak - before) / MEBIBYTE, 1)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked.pop("threads"))
    chosen = asked.pop("contestant")
    print(json.dumps(measure_step(Setting(**asked), chosen)))
