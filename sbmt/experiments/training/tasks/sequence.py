"""Settings that all runs on prepared examples share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sbmt.attention.dispatch import check_dropout
from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, Split, open_prepared
from sbmt.experiments.training.config import TrainingConfig, is_count, is_finite
from sbmt.experiments.training.data import TaskData
from sbmt.models import Encoder
from sbmt.registration import option


@dataclass(frozen=True)
class SequenceConfig(TrainingConfig):
    """Everything that decides a run on prepared examples, apart from what one kind of task alone has.

    AdamW follows a learning rate that rises along a line and falls along another.
    """

    data: str = option("", "name of the prepared examples; the task's own if left out")
    length: int = option(2048, "tokens kept of a document; pixels of an image")
    batch_size: int = option(128, "examples per optimiser step, over all devices")
    steps: int = option(5000, "optimiser steps")
    warmup_steps: int = option(1000, "steps over which the learning rate rises; then it falls, both along a line")
    eval_every: int = option(50, "steps between two evaluations on dev, each of which leaves a checkpoint")
    learning_rate: float = option(5e-4, "AdamW's largest learning rate")
    weight_decay: float = option(0.0, "AdamW's weight decay")
    d_model: int = option(64, "width")
    d_hidden: int = option(128, "width inside the MLPs and the head")
    n_heads: int = option(2, "heads per layer")
    n_layers: int = option(2, "layers")
    embedding_std: float = option(0.02, "standard deviation of embeddings at the start")
    dropout: float = option(0.1, "dropout after embeddings, attention and MLPs")
    attention_dropout: float = option(0.1, "dropout on the attention weights")
    dev_examples: int | None = option(None, "evaluate on that many dev examples; all if left out")
    test_examples: int | None = option(None, "test on that many test examples; all if left out")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(eval_every=self.eval_every)
        for name in ("dev_examples", "test_examples"):
            if (size := getattr(self, name)) is not None:
                check_sizes(**{name: size})
        if not (is_count(self.warmup_steps) and self.warmup_steps < self.steps):
            raise SbmtError(f"warmup_steps in [0, {self.steps})", self.warmup_steps, "warm up for fewer steps")
        if not (is_finite(self.weight_decay) and self.weight_decay >= 0):
            raise SbmtError("weight_decay ≥ 0", self.weight_decay, "0 switches it off")
        check_dropout(self.dropout)
        check_dropout(self.attention_dropout)

    @property
    def data_name(self) -> str:
        """The folder of the prepared examples."""
        return self.data or self.task

    @property
    def is_chosen_on_test(self) -> bool:
        """Whether the weights are chosen by the very examples that the result reports, as in the paper's pipeline."""
        return False

    def open_prepared(self) -> Prepared:
        """The prepared examples that the configuration names.

        Raises:
            SbmtError: If they are not there, or are another task's.
        """
        prepared = open_prepared(prepared_folder() / self.data_name)
        if prepared.info["task"] != self.task:
            raise SbmtError(f"examples of {self.task}", f"{prepared.info['task']} in {prepared.folder}", "name others")
        return prepared

    def split_of(self, prepared: Prepared, name: str) -> Split:
        """A split as a run sees it: where the choice is made on the test examples, these stand in for dev."""
        if not self.is_chosen_on_test or name not in ("train", "dev"):
            return prepared.splits[name]
        if name == "dev":
            return prepared.splits["test"]
        parts = prepared.splits["train"], prepared.splits["dev"]
        indices, labels = (np.concatenate([getattr(part, x) for part in parts]) for x in ("indices", "labels"))
        extras = {x: np.concatenate([part.extras[x] for part in parts]) for x in parts[0].extras}
        return Split(indices, labels, parts[0].symbols, parts[0].offsets, parts[0].lengths, extras)

    def make_encoder(self, vocab_size: int | None, max_length: int | None, **arguments: Any) -> Encoder:
        """An encoder with dropout."""
        own = {"dropout": self.dropout, "attention_dropout": self.attention_dropout}
        return super().make_encoder(vocab_size, max_length, **own | arguments)

    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Cross entropy; a mean without labels is 0."""
        if not len(labels) and reduction == "mean":
            return 0.0 * logits.float().sum()
        return nn.functional.cross_entropy(logits.float(), labels, reduction=reduction)

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """A 95 % interval, Wilson's over test examples, and chance: always answering training's commonest label."""
        from scipy.stats import binomtest

        labels = data.labels[name][: self.test_examples]
        n, right = len(labels), round(test.accuracy * len(labels))
        interval = binomtest(right, n).proportion_ci(0.95, "wilson")
        commonest = int(np.bincount(data.labels["train"]).argmax())
        bounds = [round(float(interval.low), 4), round(float(interval.high), 4)]
        found = {"n_test": n, "interval": bounds, "chance": float((labels == commonest).mean())}
        if constant := self.make_metrics(len(data.info["class_names"])):
            truth = torch.from_numpy(np.array(labels))
            answer = torch.full_like(truth, commonest)
            found["chance_metrics"] = {name: float(metric(answer, truth)) for name, metric in constant.items()}
        return found

    def make_optimizer(self, parameters: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(parameters, self.learning_rate, eps=1e-6, weight_decay=self.weight_decay)

    def learning_rate_share(self, step: int) -> float:
        """A line up to 1 over ``warmup_steps``, then a line down to 0."""
        if step < self.warmup_steps:
            return (step + 1) / (self.warmup_steps + 1)
        return (self.steps - step) / (self.steps - self.warmup_steps)

    @property
    def has_dropout(self) -> bool:
        """Whether one of the two dropouts is on."""
        return self.dropout + self.attention_dropout > 0

    @property
    def checkpoint_every(self) -> int:
        """``eval_every``, or the last step of a shorter run."""
        return min(self.eval_every, self.steps)

    def n_examples(self, split: str) -> int | None:
        """``dev_examples`` or ``test_examples``."""
        return self.dev_examples if split == "dev" else self.test_examples
