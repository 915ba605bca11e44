"""Networks trained under masks of equal edges, compared answer by answer; writes ``results/paired.json``.

The networks are those that ``sbmt study listops-edges`` and its like leave in ``runs/``. All seeds' answers to the same
test examples are compared with those of another mask and the same seed. It takes half an hour on one core.
"""

from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from sbmt.command import run_command
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.equal_edges import EQUAL_EDGES_STUDIES
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import load_run, manifest
from sbmt.experiments.training.tasks import MLM

RESULT = Path(__file__).resolve().parents[1] / "paired.json"
RUNS = RESULT.parents[1] / "runs"
DRAWS = 4  # of every mask


def share_right(folder: Path) -> Tensor:
    """How often a trained network answers each of its test examples correctly, over draws of its masks."""
    run = load_run(folder)
    answers = [evaluate(run, run.config.n_examples("test"), seed=seed) for seed in range(DRAWS)]
    return torch.stack([found.predicted == found.labels for found in answers]).double().mean(0)


def difference(one: Tensor, other: Tensor) -> dict[str, float]:
    """How much more often one is right than the other, and the standard error of that over examples."""
    ahead = one - other
    return {"mean": float(ahead.mean()), "error": float(ahead.std() / len(ahead) ** 0.5)}


def compared(right: dict[str, Tensor]) -> dict[str, dict[str, dict[str, float]]]:
    """What each trial loses to full attention, and how far fitted masks are ahead of random ones and of a window.

    Args:
        right: The answers of each trial, seed after seed. Those with fewer seeds are held against the first of full
            attention's.
    """
    lost = {trial: difference(right["full"][: len(mine)], mine) for trial, mine in right.items() if trial != "full"}
    fitted = {trial: mine for trial, mine in right.items() if trial.startswith("fitted")}
    return {
        "lost": lost,
        "ahead": {name: difference(mine, right[name.replace("fitted", "random")]) for name, mine in fitted.items()},
        "ahead_of_window": {name: difference(mine, right["window"]) for name, mine in fitted.items()},
    }


def main() -> None:
    """Asks every network of every study."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with progress_bars(Console()) as progress:
        for name, study in EQUAL_EDGES_STUDIES.items():
            if study.config.task == MLM:
                continue
            answers: dict[str, list[Tensor]] = {trial.name: [] for trial in study.trials}
            for trial, seed in progress.track(study.plan(), description=name):
                answers[trial.name].append(share_right(RUNS / name / f"{trial.name}-seed{seed}"))
            found[name] = compared({trial: torch.cat(of_seeds) for trial, of_seeds in answers.items()})
    write_json(RESULT, {"studies": found, "manifest": manifest()})


if __name__ == "__main__":
    run_command(main, "paired")
