"""Settings of a run on repeated tokens, and the named sizes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import check_sizes, choose
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.data.prepared import Prepared
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import SequenceFeed, TaskData
from sbmt.experiments.training.masks import MasksInOrder, MaskSource
from sbmt.models import TokenTagger
from sbmt.models.encoder import Positions
from sbmt.registration import option

REPEATED_TOKENS = "repeated_tokens"
CHECKPOINT_EVERY = 200
_TEST_SEED = 1_000_003  # test sequences never share the seed of a training run's data


@dataclass(frozen=True)
class RepeatedTokensConfig(TrainingConfig):
    """Everything that decides a run on repeated tokens, apart from versions and hardware. The defaults are the demo's.

    Adam follows a constant learning rate, with a cooldown if asked for. Sequences and masks are drawn one after the
    other from a generator each.
    """

    task: str = option(REPEATED_TOKENS, "always repeated_tokens")
    positions: Positions = option("none", "positions of tokens: learned, rotary or none; no label depends on them")
    cooldown: int = option(0, "steps at the end over which the learning rate falls to 0 along a line")
    test_sequences: int = option(1024, "sequences of the final evaluation")

    accelerator = "cpu"  # networks so small gain nothing from a GPU
    has_dev = False
    score_type = torch.float64
    evaluation_batch = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, {REPEATED_TOKENS: None})
        check_sizes(test_sequences=self.test_sequences)
        self._check_steps("cooldown")

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A tagger of every token."""
        return TokenTagger(self.make_encoder(self.length, None), 1)

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Sequences for training and for the test, from different generators."""
        train = SequenceFeed(self.length, self.seed, self.batch_size * self.steps)
        test = SequenceFeed(self.length, _TEST_SEED + test_seed, self.test_sequences)
        return TaskData({"train": train, "test": test})

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Mean binary cross entropy."""
        return nn.functional.binary_cross_entropy_with_logits(logits.float().flatten(), labels.float())

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Binary cross entropy of every token."""
        logits, labels = logits.float().flatten(), labels.float()
        return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")

    def predict(self, logits: Tensor) -> Tensor:
        """1 where the logit is positive, token by token."""
        return (logits.flatten() > 0).long()

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
        return 2 * _TEST_SEED + seed

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


SIZES = {
    "demo": RepeatedTokensConfig(),
    "paper": RepeatedTokensConfig(length=256, batch_size=256, steps=2000),
}
"""``demo``: minutes on two cores. ``paper``: the synthetic column of the paper's Table 7."""

FITTED = {"steps": 2000, "learning_rate": 3e-3, "block_model_rate": 1e-2, "n_clusters": 256}


def fitted(**overrides: Any) -> dict[str, Any]:
    """What changes under the preset ``fitted``: steps and rates, which fall over the last third of training.

    Args:
        **overrides: Fields and options that are set otherwise; None counts as not set.
    """
    settings = FITTED | {name: value for name, value in overrides.items() if value is not None}
    return {"cooldown": settings["steps"] // 3} | settings
