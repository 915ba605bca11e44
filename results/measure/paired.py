"""Compares networks trained with masks of equal size, example by example; writes ``results/paired.json``.

The networks are saved in ``runs/`` by ``sbmt study listops-edges`` and similar studies. For each seed, answers to the
same test examples are compared between masks. The script takes half an hour on one core.
"""

from collections.abc import Mapping

import torch
from rich.progress import track

from results.measure.common import RUNS, Scores, difference, run, write
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import Run, load_run

DRAWS = 4  # number of draws of every mask


def share_right(trained: Run) -> list[float]:
    """Returns, for each test example, the share of mask draws with which a trained network answers correctly."""
    answers = [evaluate(trained, trained.config.n_examples("test"), seed=seed) for seed in range(DRAWS)]
    return torch.stack([found.predicted == found.labels for found in answers]).double().mean(0).tolist()


def compared(right: Mapping[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """Returns accuracy lost relative to full attention, and the lead of fitted masks over random masks and a window."""
    fitted = {trial: mine for trial, mine in right.items() if trial.startswith("fitted")}
    return {
        "lost": {trial: difference(right["full"], mine) for trial, mine in right.items() if trial != "full"},
        "ahead": {name: difference(mine, right[name.replace("fitted", "random")]) for name, mine in fitted.items()},
        "ahead_of_window": {name: difference(mine, right["window"]) for name, mine in fitted.items()},
    }


def main() -> None:
    """Compares the networks of every study and writes the result file."""
    found = {}
    for name in (name for name in STUDIES if name.endswith("-edges") and name != "mlm-edges"):
        right: dict[str, list[list[float]]] = {}
        for trial, seed in track(STUDIES[name].plan(), name):
            trained = load_run(RUNS / name / f"{trial.name}-seed{seed}")
            right.setdefault(trial.name, []).append(share_right(trained))
        found[name] = compared(right)
    write("paired", {"studies": found})


if __name__ == "__main__":
    run(main, "paired")
