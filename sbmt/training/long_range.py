"""Settings of a run on a task of Long Range Arena: the paper's, and reduced ones for a CPU."""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from sbmt.attention.dispatch import check_dropout
from sbmt.errors import SbmtError, check_sizes, choose
from sbmt.models.dual_encoder import PairFeatures
from sbmt.tasks.batches import Encoding
from sbmt.training.attention_config import AttentionConfig, option

TASK_TITLES = {
    "listops": "ListOps: the value of a nested expression of minima, maxima, medians and sums.",
    "text": "Text: is a film review positive, read byte by byte?",
    "retrieval": "Retrieval: are two documents related, each read by itself?",
    "image": "Image: which of ten things does a grey picture show, read pixel by pixel?",
    "pathfinder": "Pathfinder: do two discs lie on the same dashed curve?",
}
LONG_RANGE_TASKS = tuple(TASK_TITLES)
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class LongRangeConfig(AttentionConfig):
    """Everything that decides a run on a task of Long Range Arena, apart from data, versions and hardware.

    Raises:
        SbmtError: If a value is out of range.
    """

    task: str = option("listops", f"one of: {', '.join(LONG_RANGE_TASKS)}")
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
    pair_features: PairFeatures = option("products", "retrieval: products (x, y, xy, x − y) or concatenation (x, y)")
    quirks: bool = option(False, "the quirks of the paper's pipeline: see the page on long-range tasks")
    precision: Precision = option("32-true", "32-true, bf16-mixed or 16-mixed")
    dev_examples: int | None = option(None, "evaluate on that many dev examples; all if left out")
    test_examples: int | None = option(None, "test on that many test examples; all if left out")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, dict.fromkeys(LONG_RANGE_TASKS))
        choose("pair_features", self.pair_features, dict.fromkeys(get_args(PairFeatures)))
        choose("precision", self.precision, dict.fromkeys(get_args(Precision)))
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

    def encoding(self, first_id: int) -> Encoding:
        """How this run turns symbols into tokens."""
        is_image = self.task in ("image", "pathfinder")
        return Encoding(first_id, self.length, is_image, self.quirks, self.quirks)


def _table_7(
    task: str, length: int, batch_size: int, rate: float, steps: int, warmup: int, every: int
) -> LongRangeConfig:
    return LongRangeConfig(
        task=task,
        length=length,
        batch_size=batch_size,
        learning_rate=rate,
        steps=steps,
        warmup_steps=warmup,
        eval_every=every,
    )


PAPER = {
    config.task: config
    for config in (
        _table_7("listops", 2048, 128, 5e-4, 5000, 1000, 50),
        _table_7("text", 3072, 128, 5e-4, 20000, 8000, 500),
        _table_7("retrieval", 4096, 32, 1e-4, 30000, 800, 300),
        _table_7("image", 1024, 1024, 5e-4, 35000, 175, 175),
        _table_7("pathfinder", 1024, 1024, 5e-4, 62400, 312, 312),
    )
}
"""The paper's Table 7; warm-up and evaluations as in the pipeline that it uses, since the paper does not say."""

_REDUCED: dict[str, dict[str, Any]] = {
    "listops": {"data": "listops-reduced", "length": 100, "steps": 1200},
    "text": {"length": 256, "steps": 600, "dev_examples": 1000, "test_examples": 4000},
    "retrieval": {"data": "retrieval-reduced", "length": 128, "steps": 600, "learning_rate": 2e-3},
    "image": {"data": "image-lossy", "length": 256, "steps": 600},
    "pathfinder": {"length": 144, "batch_size": 64, "steps": 1000, "learning_rate": 2e-3, "quirks": True}
    | {"data": "pathfinder-reduced"},  # where black pixels count, 1500 steps do not leave chance
}
_SMALL: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 100, "eval_every": 100}
_SMALL |= {"n_clusters": 32, "rank": 64, "embedding_std": 0.3, "dropout": 0.0, "attention_dropout": 0.0}
REDUCED = {task: replace(PAPER[task], **_SMALL | settings) for task, settings in _REDUCED.items()}
"""What one CPU core does in minutes: shorter documents, smaller images, fewer steps, no dropout."""
