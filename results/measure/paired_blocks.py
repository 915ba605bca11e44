"""Masked language models under masks of equal edges, compared block by block; writes ``results/paired_blocks.json``.

The networks are those that ``sbmt study mlm-edges`` leaves in ``runs/``. All guess the same hidden tokens of the same
test blocks. Tokens of one block are alike, so the standard errors are over blocks. It takes minutes on one core.
"""

from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from results.measure.paired import DRAWS, RUNS, difference
from sbmt.command import run_command
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import Run, load_run, manifest

RESULT = Path(__file__).resolve().parents[1] / "paired_blocks.json"
STUDY = STUDIES["mlm-edges"]


def hidden_tokens(run: Run) -> list[int]:
    """How many tokens of each test block have to be guessed."""
    config = run.config
    feed = config.open_data(run.tokenizer).feeds["test"]
    batches = BatchStream(feed, feed.in_order(config.evaluation_batch, config.n_examples("test")))
    return [int(n) for batch in batches if batch.selected is not None for n in batch.selected.sum(-1)]


def loss_by_block(run: Run) -> Tensor:
    """Mean cross entropy over the hidden tokens of each test block, in nats, and over draws of the masks."""
    losses = [evaluate(run, run.config.n_examples("test"), seed=seed).losses for seed in range(DRAWS)]
    blocks = torch.stack(losses).double().mean(0).split(hidden_tokens(run))
    return torch.stack([block.mean() for block in blocks])


def compared(loss: dict[str, Tensor]) -> dict[str, dict[str, dict[str, float]]]:
    """By how many nats each trial is behind full attention and behind the window, and fitted masks behind random ones.

    Args:
        loss: Of each trial, by block, seed after seed. Only seeds that both have are compared.
    """

    def behind(trial: str, other: str) -> dict[str, float]:
        shared = min(len(loss[trial]), len(loss[other]))
        return difference(loss[trial][:shared], loss[other][:shared])

    fitted = [trial for trial in loss if trial.startswith("fitted")]
    return {
        "full": {trial: behind(trial, "full") for trial in loss if trial != "full"},
        "window": {trial: behind(trial, "window") for trial in loss if trial != "window"},
        "random": {trial: behind(trial, trial.replace("fitted", "random")) for trial in fitted},
    }


def main() -> None:
    """Asks every network of the study."""
    torch.set_num_threads(1)
    loss: dict[str, list[Tensor]] = {trial.name: [] for trial in STUDY.trials}
    with progress_bars(Console()) as progress:
        for trial, seed in progress.track(STUDY.plan(), description=STUDY.name):
            loss[trial.name].append(loss_by_block(load_run(RUNS / STUDY.name / f"{trial.name}-seed{seed}")))
    behind = compared({trial: torch.cat(of_seeds) for trial, of_seeds in loss.items()})
    write_json(RESULT, {"behind": behind, "manifest": manifest()})


if __name__ == "__main__":
    run_command(main, "paired_blocks")
