"""Masked language models under masks of equal edges, compared block by block; writes ``results/paired_blocks.json``.

The networks are those that ``sbmt study mlm-edges`` leaves in ``runs/``. All guess the same hidden tokens of the same
test blocks. Tokens of one block are correlated, so a block is one item. It takes minutes on one core.
"""

import torch

from results.measure.common import Scores, difference, over_runs, run, write
from results.measure.paired import DRAWS
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.run import Run


def loss_by_block(trained: Run) -> list[float]:
    """Mean cross entropy over the hidden tokens of each test block, in nats, and over draws of the masks."""
    config = trained.config
    feed, n_blocks = config.open_data(trained.tokenizer).feeds["test"], config.n_examples("test")
    batches = BatchStream(feed, feed.in_order(config.evaluation_batch, n_blocks))
    n_hidden = [int(n) for batch in batches if batch.selected is not None for n in batch.selected.sum(-1)]
    losses = torch.stack([evaluate(trained, n_blocks, seed=seed).losses for seed in range(DRAWS)]).double().mean(0)
    return [float(block.mean()) for block in losses.split(n_hidden)]


def compared(loss: dict[str, Scores]) -> dict[str, dict[str, dict[str, float]]]:
    """By how many nats each trial is behind full attention and the window, and fitted masks behind random ones."""
    behind = {
        other: {trial: difference(mine, loss[other]) for trial, mine in loss.items() if trial != other}
        for other in ("full", "window")
    }
    fitted = [trial for trial in loss if trial.startswith("fitted")]
    return behind | {
        "random": {name: difference(loss[name], loss[name.replace("fitted", "random")]) for name in fitted}
    }


def main() -> None:
    """Compares the networks of the study."""
    write("paired_blocks", {"behind": compared(over_runs(STUDIES["mlm-edges"], loss_by_block))})


if __name__ == "__main__":
    run(main, "paired_blocks")
