"""How well a masked language model guesses the hidden tokens of its test blocks."""

from math import exp

import torch
from torch import nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.training.language import MlmConfig
from sbmt.experiments.training.module import Scores
from sbmt.experiments.training.streams import BatchStream
from sbmt.experiments.training.task_data import open_data
from sbmt.experiments.training.task_runs import TaskRun

_BATCH = 16


@torch.no_grad()
def evaluate_blocks(run: TaskRun, n_blocks: int | None = None, *, n_samples: int = 1, seed: int = 0) -> Scores:
    """Runs a model on the first test blocks; the hidden tokens are those of every evaluation in batches of 16.

    Args:
        run: Whose model; it is put in eval mode.
        n_blocks: How many blocks; None means all.
        n_samples: Masks of attention drawn per block; logits are averaged over them.
        seed: Seed of these masks.

    Raises:
        SbmtError: If the run is no masked language model, or its corpus is not there or another one.
    """
    check_sizes(n_samples=n_samples, **({} if n_blocks is None else {"n_blocks": n_blocks}))
    if not isinstance(run.config, MlmConfig):
        raise SbmtError("a run of sbmt train mlm", f"one on {run.config.task}", "name another folder")
    data = open_data(run.config, run.tokenizer)
    if data.info["sha256"] != run.about["data"]["sha256"]:
        do = "prepare the corpus that the run was trained on"
        raise SbmtError(f"text with checksum {run.about['data']['sha256'][:12]}…", data.info["name"], do)
    feed = data.feeds["test"]
    generator = torch.Generator().manual_seed(seed)
    model = run.model.eval()
    loss, n_right, n_labels, n_seen, expected = 0.0, 0, 0, 0, 0.0
    densities = torch.zeros(run.config.n_layers, run.config.n_heads, dtype=torch.float64)
    for batch in BatchStream(feed, feed.once(_BATCH, min(len(feed), n_blocks or len(feed)))):
        mask = None if bool(batch.mask.all()) else batch.mask
        outputs = [model(batch.tokens, mask, selected=batch.selected, generator=generator) for _ in range(n_samples)]
        logits = torch.stack([o.values for o in outputs]).mean(0)
        loss += float(nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
        n_right += int((logits.argmax(-1) == batch.labels).sum())
        n_labels, n_seen = n_labels + len(batch.labels), n_seen + len(batch.tokens)
        for o in outputs:
            densities += torch.stack([a.density.double().sum(0) for a in o.attention]) / n_samples
            expected += float(torch.stack([a.expected_density.double().mean(1).sum() for a in o.attention]).mean())
    n_labels, densities = max(1, n_labels), densities / n_seen
    metrics = {"perplexity": exp(loss / n_labels)}
    mean, expected = float(densities.mean()), expected / n_seen / n_samples
    return Scores(loss / n_labels, n_right / n_labels, mean, expected, densities.tolist(), metrics)
