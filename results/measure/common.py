"""Common parts of the scripts: places of files, running a script, and paired differences with their uncertainty."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbmt.command import run_command
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.manifest import manifest

RESULTS = Path(__file__).resolve().parents[1]
RUNS = RESULTS.parent / "runs"
N_RESAMPLES = 1000


def write(name: str, content: dict[str, Any], about: dict[str, Any] | None = None) -> None:
    """Writes a result file with its manifest."""
    write_json(RESULTS / f"{name}.json", content | {"manifest": about or manifest()})


def kept(place: str, measure: Callable[[], Any]) -> Any:
    """The result of a measurement, which an earlier run of the script may have left at a place in ``runs/``."""
    if not (RUNS / place).exists():
        write_json(RUNS / place, measure())
    return read_json(RUNS / place)


def run(main: Callable[[], None], name: str) -> None:
    """Runs a script on one thread, and reports errors in one line. With any argument, prints what it does instead."""
    if sys.argv[1:]:
        sys.exit(sys.modules["__main__"].__doc__)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run_command(main, name)


Scores = Sequence[Sequence[float]] | np.ndarray
"""A score for each seed and test item."""


def difference(one: Scores, other: Scores, seed: int = 0) -> dict[str, float]:
    """The mean by which one exceeds the other, over the seeds and items that both have.

    Answers of several networks to the same item are correlated, and so are those of one network to all items, so
    neither count as independent. Therefore both seeds and items are resampled with replacement for each of 1,000 means.
    ``error`` is the standard deviation of the means; ``low`` and ``high`` bound the middle 95 %. A single seed is not
    resampled: the error then covers the items but not differences between trainings, which two or three seeds show only
    roughly, too.
    """
    n_seeds = min(len(one), len(other))
    ahead = np.asarray(one, float)[:n_seeds] - np.asarray(other, float)[:n_seeds]  # n_seeds n_items
    draw, n_items = np.random.default_rng(seed), ahead.shape[1]
    times_seed = draw.multinomial(n_seeds, np.full(n_seeds, 1 / n_seeds), N_RESAMPLES)
    times_item = draw.multinomial(n_items, np.full(n_items, 1 / n_items), N_RESAMPLES)
    means = ((times_seed @ ahead) * times_item).sum(1) / ahead.size
    low, high = np.quantile(means, [0.025, 0.975])
    found = {"mean": ahead.mean(), "error": means.std(ddof=1), "low": low, "high": high}
    return {name: float(x) for name, x in found.items()} | {"n_seeds": n_seeds, "n_items": n_items}
