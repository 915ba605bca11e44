"""What runs on generated sequences share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import check_sizes, choose
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.prepared import Prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import Sample, SequenceFeed, TaskData
from sbmt.experiments.training.masks import MasksInOrder, MaskSource
from sbmt.models.encoder import Positions
from sbmt.registration import option

CHECKPOINT_EVERY = 200
TEST_SEED = 1_000_003
"""Added to the seed of an evaluation: its sequences never share the seed of a training run's."""


@dataclass(frozen=True)
class GeneratedConfig(TrainingConfig):
    """Everything that decides a run on generated sequences, apart from what one task alone has.

    Adam follows a constant learning rate, with a cooldown if asked for. Sequences and masks are drawn one after the
    other from a generator each.
    """

    positions: Positions = option("none", "positions of tokens: learned, rotary or none; no label depends on them")
    cooldown: int = option(0, "steps at the end over which the learning rate falls to 0 along a line")
    test_sequences: int = option(1024, "sequences of the final evaluation")

    accelerator = "cpu"  # networks so small gain nothing from a GPU
    has_dev = False
    score_type = torch.float64
    evaluation_batch = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, {type(self).task: None})
        check_sizes(test_sequences=self.test_sequences)
        self._check_steps("cooldown")

    def sample(self, n: int, generator: torch.Generator) -> Batch:
        """Draws n sequences, the same ones at once as one after the other."""
        raise NotImplementedError

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Sequences for training and for the test, from different generators."""
        return self._task_data(self.sample, self.sample, test_seed)

    def _task_data(self, train: Sample, test: Sample, test_seed: int, info: dict[str, Any] | None = None) -> TaskData:
        """The same, given what draws them and what they are made from."""
        feeds = {
            "train": SequenceFeed(train, self.seed, self.batch_size * self.steps),
            "test": SequenceFeed(test, TEST_SEED + test_seed, self.test_sequences),
        }
        return TaskData(dict(feeds), info or {})

    def make_optimizer(self, parameters: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(parameters, self.learning_rate)

    def learning_rate_share(self, step: int) -> float:
        """1, then a line over the last ``cooldown`` steps towards 0."""
        return min(1.0, (self.steps - step) / (self.cooldown + 1))

    def make_masks(self) -> MaskSource:
        """One generator for training, which continues from step to step, and one for evaluations."""
        return MasksInOrder(self.seed + 1, self.evaluation_seed(0))

    def evaluation_seed(self, seed: int) -> int:
        """Far from the seeds of sequences."""
        return 2 * TEST_SEED + seed

    @property
    def checkpoint_every(self) -> int:
        """:data:`CHECKPOINT_EVERY`."""
        return CHECKPOINT_EVERY

    @property
    def row_every(self) -> int:
        """A row for every step."""
        return 1

    def n_examples(self, split: str) -> int | None:
        """``test_sequences``."""
        return self.test_sequences

    def test_batch_size(self, batch_size: int) -> int:
        """The same for every run, so that all are tested on the same sequences and masks."""
        return self.evaluation_batch


@dataclass(frozen=True)
class RepeatsConfig(GeneratedConfig):
    """The question of every token: does what it shows occur elsewhere in the sequence?"""

    def loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """Binary cross entropy of every token."""
        logits, labels = logits.float().flatten(), labels.float()
        return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction=reduction)

    def predict(self, logits: Tensor) -> Tensor:
        """1 where the logit is positive, token by token."""
        return (logits.flatten() > 0).long()
