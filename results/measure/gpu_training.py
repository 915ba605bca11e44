"""Measures the time on a GPU until a network solves repeated tokens; writes ``results/gpu/training.json``.

Networks with full attention and with fitted masks are trained on the same sequences of 1,024 tokens, which are never
repeated. A network that was timed by an earlier run of the script is not trained again.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from results.measure.common import kept, run, write
from sbmt.experiments.benchmarks.machine import machine_manifest
from sbmt.experiments.training import SIZES, RepeatedTokensConfig, Step, fit

CONFIG = SIZES["demo"].override(length=1024, batch_size=4, steps=2000, has_tied_start=True)
FITTED = {"attention": "sbm", "preset": "fitted", "n_clusters": 2304, "edges_per_query": 64.0}
NETWORKS: dict[str, dict[str, Any]] = {"full": {"attention": "full"}, "fitted": FITTED}
SOLVED, STEPS = 0.99, 10  # required accuracy, and number of steps over which it is averaged


def first_reached(accuracies: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Returns the time at which the mean accuracy over ten steps first reaches 0.99, or None if it never does."""
    means = (sum(accuracies[end - STEPS : end]) / STEPS for end in range(STEPS, len(accuracies) + 1))
    return next((at for at, mean in zip(seconds[STEPS - 1 :], means, strict=True) if mean >= SOLVED), None)


def time_training(config: RepeatedTokensConfig, device: str) -> dict[str, Any]:
    """Trains a network, and records the time at which each step ends and the accuracy on its sequences.

    Times are measured from the end of the first step, in which kernels are compiled; ``start`` is the time until then.
    Masks have extra keys in training but not in the final test, so the test accuracy may differ.
    """
    steps: list[Step] = []
    ends = [time.perf_counter()]

    def note(step: Step) -> None:
        steps.append(step)
        ends.append(time.perf_counter())

    trained = fit(config, on_step=note, accelerator=device)
    seconds, accuracies = [end - ends[1] for end in ends[1:]], [step.accuracy for step in steps]
    times = {"start": ends[1] - ends[0], "until_solved": first_reached(accuracies, seconds), "all_steps": seconds[-1]}
    curve = {"accuracy": accuracies, "density": [step.density for step in steps], "seconds": seconds}
    about = {"config": config.to_dict(), "test": {"accuracy": trained.test.accuracy, "density": trained.test.density}}
    return times | about | {"steps": {name: [round(x, 5) for x in values] for name, values in curve.items()}}


def main() -> None:
    """Times both networks, unless they have been timed before, writes the result file, and prints the times."""
    found = {
        name: kept(f"gpu/{name}.json", partial(time_training, CONFIG.override(**settings), "cuda"))
        for name, settings in NETWORKS.items()
    }
    about = machine_manifest(torch.device("cuda"))
    write("gpu/training", {"solved": SOLVED, "mean_over_steps": STEPS, "networks": found}, about)
    for name, one in found.items():
        at = one["until_solved"]
        print(f"{name}: accuracy {SOLVED} ", "never reached" if at is None else f"after {at:.1f} seconds", sep="")


if __name__ == "__main__":
    run(main, "gpu_training")
