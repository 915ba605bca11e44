"""Parts shared by the scripts: file locations, the entry point, and paired differences with their uncertainty."""

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
    """Returns the result of a measurement, which is read from ``runs/`` if an earlier run of the script saved it."""
    if not (RUNS / place).exists():
        write_json(RUNS / place, measure())
    return read_json(RUNS / place)


def run(main: Callable[[], None], name: str) -> None:
    """Runs a script on one thread, and reports errors in one line. With any argument, prints its docstring instead."""
    if sys.argv[1:]:
        sys.exit(sys.modules["__main__"].__doc__)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    run_command(main, name)


Scores = Sequence[Sequence[float]] | np.ndarray
"""Scores, one for each seed and test item."""


def difference(one: Scores, other: Scores, seed: int = 0) -> dict[str, float]:
    """Computes the mean of ``one`` minus ``other`` over their common seeds and items, with its uncertainty.

    The answers of different networks to one item are correlated, as are the answers of one network to different items.
    Therefore, both seeds and items are resampled with replacement for each of 1,000 means. ``error`` is the standard
    deviation of these means, and ``low`` and ``high`` bound their middle 95 %. A single seed is not resampled, so the
    error covers the items but not the differences between training runs. Two or three seeds give only a rough idea of
    these differences.
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
