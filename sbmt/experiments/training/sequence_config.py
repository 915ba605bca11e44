"""Settings that runs on prepared examples share: how long, how fast, how often judged."""

from dataclasses import dataclass
from typing import Literal

from sbmt.attention.inputs import check_dropout
from sbmt.errors import SbmtError, check_choice, check_sizes
from sbmt.experiments.training.attention_config import AttentionConfig, option

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class SequenceConfig(AttentionConfig):
    """Everything that decides a run on prepared examples, apart from what one kind of task alone has.

    Raises:
        SbmtError: If a value is out of range.
    """

    task: str = option("", "name of the task")
    data: str = option("", "name of the prepared examples; the task's own if left out")
    length: int = option(2048, "tokens kept of a document; pixels of an image")
    batch_size: int = option(128, "examples per optimiser step, over all devices")
    accumulate: int = option(1, "parts that a batch is computed in, to save memory")
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
    precision: Precision = option("32-true", "32-true, bf16-mixed or 16-mixed")
    dev_examples: int | None = option(None, "evaluate on that many dev examples; all if left out")
    test_examples: int | None = option(None, "test on that many test examples; all if left out")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("precision", self.precision, Precision)
        check_sizes(accumulate=self.accumulate, eval_every=self.eval_every)
        for name in ("dev_examples", "test_examples"):
            if (size := getattr(self, name)) is not None:
                check_sizes(**{name: size})
        if self.batch_size % self.accumulate:
            raise SbmtError(f"accumulate that divides a batch of {self.batch_size}", self.accumulate, "change one")
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
    def is_image(self) -> bool:
        """Whether tokens are pixels."""
        return False

    @property
    def is_chosen_on_test(self) -> bool:
        """Whether the checkpoint is chosen by the very examples that the result reports, as the pipeline does."""
        return False

    @property
    def best_by(self) -> Literal["accuracy", "loss"]:
        """What on dev decides which weights are kept."""
        return "accuracy"
