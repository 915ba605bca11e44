"""Networks trained under masks of equal edges, compared answer by answer; writes ``results/paired.json``.

The networks are those that ``sbmt study listops-edges`` and similar studies leave in ``runs/``. The answers to the same
test examples are compared with those of another mask and the same seed. It takes half an hour on one core.
"""

import torch

from results.measure.common import Scores, difference, over_runs, run, write
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import Run

DRAWS = 4  # of every mask


def share_right(trained: Run) -> list[float]:
    """The share of mask draws with which a trained network answers each of its test examples correctly."""
    answers = [evaluate(trained, trained.config.n_examples("test"), seed=seed) for seed in range(DRAWS)]
    return torch.stack([found.predicted == found.labels for found in answers]).double().mean(0).tolist()


def compared(right: dict[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """The loss of each trial against full attention, and the lead of fitted masks over random ones and a window."""
    fitted = {trial: mine for trial, mine in right.items() if trial.startswith("fitted")}
    return {
        "lost": {trial: difference(right["full"], mine) for trial, mine in right.items() if trial != "full"},
        "ahead": {name: difference(mine, right[name.replace("fitted", "random")]) for name, mine in fitted.items()},
        "ahead_of_window": {name: difference(mine, right["window"]) for name, mine in fitted.items()},
    }


def main() -> None:
    """Compares the networks of every study."""
    studies = [study for name, study in STUDIES.items() if name.endswith("-edges") and name != "mlm-edges"]
    write("paired", {"studies": {study.name: compared(over_runs(study, share_right)) for study in studies}})


if __name__ == "__main__":
    run(main, "paired")
