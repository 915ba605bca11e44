"""Settings of a training run, and what its task decides: model, data, loss, optimiser, masks, scores."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sbmt.attention.inputs import check_dropout
from sbmt.errors import SbmtError, check_choice, check_sizes
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, Split, open_prepared
from sbmt.experiments.training.attention_config import AttentionConfig, option
from sbmt.experiments.training.data import TaskData
from sbmt.experiments.training.masks import MasksByNumber, MaskSource
from sbmt.models import Encoder

if TYPE_CHECKING:
    from torchmetrics import Metric

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
ROWS = 200
"""Rows of training in the table of metrics, unless the task wants one for every step."""


@dataclass(frozen=True)
class TrainingConfig(AttentionConfig, ABC):
    """Everything that decides a run, apart from data, versions and hardware.

    The fields are the settings that a user chooses. The methods are what the task decides; a new task is a subclass
    that overrides those in which it differs.

    Raises:
        SbmtError: If a value is out of range.
    """

    task: str = option("", "name of the task")
    accumulate: int = option(1, "parts that a batch is computed in, to save memory")
    precision: Precision = option("32-true", "32-true, bf16-mixed or 16-mixed")

    accelerator = "auto"
    """What ``auto`` means: whatever Lightning finds, or ``cpu``."""

    has_dev = True
    """Whether dev examples choose the weights that are kept; otherwise the last ones are."""

    score_type = torch.float32
    """The type in which the scores of batches are added up."""

    evaluation_batch = 16
    """Examples per batch of :func:`~sbmt.experiments.training.evaluate.evaluate`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("precision", self.precision, Precision)
        check_sizes(accumulate=self.accumulate)
        if self.batch_size % self.accumulate:
            raise SbmtError(f"accumulate that divides a batch of {self.batch_size}", self.accumulate, "change one")

    @property
    def is_image(self) -> bool:
        """Whether tokens are pixels."""
        return False

    # Model

    @abstractmethod
    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """The model, with weights drawn from torch's global generator; see :func:`build_model`."""

    def make_encoder(self, vocab_size: int, max_length: int | None, **dropouts: float) -> Encoder:
        """An encoder with the network and the attention of the configuration."""
        return Encoder(
            vocab_size,
            self.length if self.positions == "learned" else max_length,
            d_model=self.d_model,
            d_hidden=self.d_hidden,
            n_heads=self.n_heads,
            n_layers=self.n_layers,
            embedding_std=self.embedding_std,
            positions=self.positions,
            attention=self.attention,
            has_tied_start=self.has_tied_start,
            **dropouts,
            **self.attention_arguments(),
        )

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Gives a new model the weights that training starts from, if there are any; returns what results say of it."""
        return {}

    # Data

    @abstractmethod
    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Opens what a run reads.

        Args:
            tokenizer: That of a finished run; None finds the one that a new run takes.
            prepared: The examples; None opens those that the configuration names.
            test_seed: Seed of test examples that are generated; prepared ones do not depend on it.

        Raises:
            SbmtError: If examples or tokeniser are missing, damaged, or another task's.
        """

    # Optimisation

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean loss in nats, without the penalty on density."""

    @abstractmethod
    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of every label."""

    def predict(self, logits: Tensor) -> Tensor:
        """The likeliest labels."""
        return logits.argmax(-1)

    @abstractmethod
    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimiser, with the largest learning rate."""

    @abstractmethod
    def learning_rate_share(self, step: int) -> float:
        """The learning rate at a step (from 0) as a share of the largest."""

    # Randomness

    def make_masks(self) -> MaskSource:
        """The generators that masks are drawn from."""
        return MasksByNumber(self.seed)

    @property
    def has_dropout(self) -> bool:
        """Whether training draws from torch's global generator."""
        return False

    def evaluation_seed(self, seed: int) -> int:
        """The seed of the masks of :func:`~sbmt.experiments.training.evaluate.evaluate`."""
        return seed

    # Evaluation

    @property
    def checkpoint_every(self) -> int:
        """Steps between two checkpoints; on tasks with dev examples, also between two evaluations."""
        raise NotImplementedError

    @property
    def row_every(self) -> int:
        """Steps that a row of the table of metrics averages."""
        return max(1, self.steps // ROWS)

    @property
    def best_by(self) -> Literal["accuracy", "loss"]:
        """Which score on dev decides which weights are kept."""
        return "accuracy"

    @property
    def n_dev(self) -> int | None:
        """Dev examples of an evaluation; None takes all."""
        return None

    @property
    def n_test(self) -> int | None:
        """Test examples of the final evaluation; None takes all."""
        return None

    def test_batch_size(self, batch_size: int) -> int:
        """Examples per batch of an evaluation, given those of a step of training."""
        return batch_size

    def make_metrics(self, n_classes: int) -> "dict[str, Metric]":
        """Metrics beside loss and accuracy, each to be updated with ``(predictions, labels)``."""
        return {}

    def metrics_of(self, loss: float) -> dict[str, float]:
        """What a mean loss says in other words."""
        return {}

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """What to compare the scores on a test split with."""
        return {}


@dataclass(frozen=True)
class SequenceConfig(TrainingConfig):
    """Everything that decides a run on prepared examples, apart from what one kind of task alone has.

    AdamW follows a learning rate that rises along a line and falls along another.

    Raises:
        SbmtError: If a value is out of range.
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
        if not 0 <= self.warmup_steps < max(self.steps, 1):
            raise SbmtError(f"warmup_steps in [0, {self.steps})", self.warmup_steps, "warm up for fewer steps")
        if not 0 <= self.weight_decay < float("inf"):
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

    def make_encoder(self, vocab_size: int, max_length: int | None, **dropouts: float) -> Encoder:
        """An encoder with dropout."""
        own = {"dropout": self.dropout, "attention_dropout": self.attention_dropout}
        return super().make_encoder(vocab_size, max_length, **own | dropouts)

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean cross entropy; 0 without labels."""
        return nn.functional.cross_entropy(logits.float(), labels) if len(labels) else 0.0 * logits.float().sum()

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross entropy of every label."""
        return nn.functional.cross_entropy(logits, labels, reduction="none")

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

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
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

    @property
    def n_dev(self) -> int | None:
        """``dev_examples``."""
        return self.dev_examples

    @property
    def n_test(self) -> int | None:
        """``test_examples``."""
        return self.test_examples


def build_model(config: TrainingConfig, info: dict[str, Any] | None = None) -> Any:
    """The model of a configuration, with weights drawn from its seed; torch's global generator is left as it was.

    Args:
        config: What to build.
        info: What the model must know of the examples: ``vocab_size``, ``class_names``, ``n_documents``. Repeated
            tokens need none.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return config.make_model(info or {})
