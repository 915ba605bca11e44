"""Suite ``memory``: how much memory one training step adds to what a process already holds.

``python -m sbmt.experiments.benchmarks.memory SETTING`` is what runs in a process of its own: one step, two numbers.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from sbmt.experiments.benchmarks.attention import CONTESTANTS, entry
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.memory import STEADY, in_fresh_process, peak_of
from sbmt.experiments.progress import Track, untracked

STEPS = [Setting(n, p, "structured") for n, p in ((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005))]
FITTED_STEPS = [fitted_setting(n, 16.0) for n in (4096, 16384, 65536)]


def run(
    settings: Sequence[Setting], contestants: Sequence[str] = tuple(CONTESTANTS), track: Track = untracked
) -> dict[str, Any]:
    """What a training step of each contestant adds to a fresh process's memory: ``cases``."""
    found: list[dict[str, Any]] = [asdict(setting) | {"is_training": True, "results": {}} for setting in settings]
    for at, name in track([(i, name) for i in range(len(settings)) for name in contestants], description="memory"):
        job = {"setting": asdict(settings[at]), "name": name, "threads": torch.get_num_threads()}
        why = CONTESTANTS[name].why_not(settings[at])
        result = {"missing": why} if why else in_fresh_process("sbmt.experiments.benchmarks.memory", job, STEADY)
        found[at]["results"][name] = result
    return {"cases": found}


def measure_step(setting: Setting, name: str) -> dict[str, float]:
    """MiB held ``before`` the step, and added by the ``step`` at its peak, in this process, which should be fresh."""
    small = replace(setting, n=128, density=0.04)
    entry(CONTESTANTS[name], build(small), is_training=True).seconds()  # loads kernels and starts thread pools
    before, added, _ = peak_of(entry(CONTESTANTS[name], build(setting), is_training=True).seconds)
    return {"before": round(before, 1), "step": round(added, 1)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    print(json.dumps(measure_step(Setting(**asked["setting"]), asked["name"])))
