"""Suite ``memory``: how much memory one training step adds to what a process already holds.

``python -m sbmt.experiments.benchmarks.memory SETTING`` is what runs in a process of its own: one step, two numbers.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, entry
from sbmt.experiments.memory import STEADY, in_fresh_process, peak_of
from sbmt.experiments.progress import Track, untracked

_STRUCTURED = [Setting(n, p, "structured") for n, p in ((4096, 0.01), (4096, 0.04), (16384, 0.0025), (65536, 0.0005))]
_FITTED = [fitted_setting(n, 16.0) for n in (4096, 16384, 65536)]
FULL: dict[str, Any] = {"steps": _STRUCTURED, "contestants": ("sdpa", "sbm", "pyg", "dense")}
QUICK: dict[str, Any] = {"steps": _STRUCTURED[:1]}
FITTED_FULL: dict[str, Any] = {"steps": _FITTED, "answers": [fitted_setting(262144, 16.0)]}
FITTED_QUICK: dict[str, Any] = {"steps": _FITTED[:1]}


def run(
    track: Track = untracked,
    *,
    steps: Sequence[Setting],
    answers: Sequence[Setting] = (),
    contestants: Sequence[str] = ("sdpa", "sbm"),
) -> dict[str, Any]:
    """What a training step of each contestant adds to a fresh process's memory, and what a forward pass does."""
    cases = [(setting, True) for setting in steps] + [(setting, False) for setting in answers]
    found = [asdict(setting) | {"is_training": is_training, "results": {}} for setting, is_training in cases]
    for at, name in track([(i, name) for i in range(len(cases)) for name in contestants], description="memory"):
        setting, is_training = cases[at]
        job = {"setting": asdict(setting), "is_training": is_training, "name": name, "threads": torch.get_num_threads()}
        why = CONTESTANTS[name].why_not(setting, is_training)
        result = {"missing": why} if why else in_fresh_process("sbmt.experiments.benchmarks.memory", job, STEADY)
        found[at]["results"][name] = result
    return {"cases": found}


def measure_step(setting: Setting, name: str, is_training: bool) -> dict[str, float]:
    """MiB held ``before`` the step, and added by the ``step`` at its peak, in this process, which should be fresh."""
    small = replace(setting, n=128, density=0.04)
    entry(CONTESTANTS[name], build(small), is_training).seconds()  # loads kernels and starts thread pools
    before, added, _ = peak_of(entry(CONTESTANTS[name], build(setting), is_training).seconds)
    return {"before": round(before, 1), "step": round(added, 1)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["threads"])
    print(json.dumps(measure_step(Setting(**asked["setting"]), asked["name"], asked["is_training"])))
