"""How a trained model does on every single test example."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.prepared import Prepared
from sbmt.experiments.training.language import MlmConfig
from sbmt.experiments.training.streams import BatchStream
from sbmt.experiments.training.task_data import ExampleFeed, in_order, open_data
from sbmt.experiments.training.task_runs import TaskRun

_BATCH = 16


@dataclass(frozen=True, eq=False)
class PerExample:
    """Numbers of single test examples, in the order of the split.

    Attributes:
        predicted: Labels with the largest logit, int64 ``(n,)``.
        labels: True labels, int64 ``(n,)``.
        losses: Cross entropy in nats, ``(n,)``.
        densities: Share of pairs attended, ``(n, layers, heads)``; for pairs of documents the mean of the two.
        extras: What the prepared examples say besides, such as how difficult each is.
    """

    predicted: Tensor
    labels: Tensor
    losses: Tensor
    densities: Tensor
    extras: dict[str, NDArray[Any]]

    @property
    def n_examples(self) -> int:
        """How many examples."""
        return len(self.labels)

    @property
    def accuracy(self) -> float:
        """Share labelled right."""
        return float((self.predicted == self.labels).double().mean())

    @property
    def loss(self) -> float:
        """Mean cross entropy."""
        return float(self.losses.double().mean())

    @property
    def density(self) -> float:
        """Mean over examples, layers and heads."""
        return float(self.densities.double().mean())


@torch.no_grad()
def evaluate_examples(
    run: TaskRun,
    n_examples: int | None = None,
    *,
    n_samples: int = 1,
    seed: int = 0,
    prepared: Prepared | None = None,
) -> PerExample:
    """Runs a model on the first test examples.

    Args:
        run: Whose model; it is put in eval mode.
        n_examples: How many examples; None means all.
        n_samples: Masks drawn per example; logits are averaged over them.
        seed: Seed of the masks.
        prepared: The data; None opens what the run was trained on.

    Raises:
        SbmtError: If the data are not there, or are others than the run was trained on.
    """
    check_sizes(n_samples=n_samples, **({} if n_examples is None else {"n_examples": n_examples}))
    if isinstance(run.config, MlmConfig):
        raise SbmtError("a run on labelled examples", "a masked language model", "fine-tune it first: sbmt train glue")
    data = open_data(run.config, run.tokenizer, prepared)
    if data.info["sha256"] != run.about["data"]["sha256"]:
        do = "prepare the data that the run was trained on"
        raise SbmtError(f"examples with checksum {run.about['data']['sha256'][:12]}…", data.info["name"], do)
    feed = data.feeds["test"]
    assert isinstance(feed, ExampleFeed)
    n = min(len(feed), n_examples or len(feed))
    generator = torch.Generator().manual_seed(seed)
    model = run.model.eval()
    found: list[tuple[Tensor, ...]] = []
    for batch in BatchStream(feed, in_order(n, _BATCH)):
        mask = None if bool(batch.mask.all()) else batch.mask
        outputs = [model(batch.tokens, mask, generator=generator) for _ in range(n_samples)]
        logits = torch.stack([o.values for o in outputs]).mean(0)
        # samples layers examples·documents heads
        drawn = torch.stack([torch.stack([a.density for a in o.attention]) for o in outputs]).mean(0)
        densities = drawn.transpose(0, 1).unflatten(0, (len(batch.labels), -1)).mean(1)
        losses = nn.functional.cross_entropy(logits, batch.labels, reduction="none")
        found.append((logits.argmax(-1), batch.labels, losses, densities))
    predicted, labels, losses, densities = (torch.cat(parts) for parts in zip(*found, strict=True))
    return PerExample(
        predicted, labels, losses, densities, {x: np.asarray(v[:n]) for x, v in feed.split.extras.items()}
    )
