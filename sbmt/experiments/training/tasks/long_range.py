"""Settings of a run on a task of Long Range Arena: the paper's, and reduced ones for a CPU."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from sbmt.errors import check_choice, choose
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.data.prepared import Prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.training.data import INFO, ExampleFeed, TaskData
from sbmt.experiments.training.tasks.sequence import SequenceConfig
from sbmt.models import DualEncoder, SequenceClassifier
from sbmt.models.heads import PairFeatures
from sbmt.registration import option

TASK_TITLES = {
    "listops": "ListOps: the value of a nested expression of minima, maxima, medians and sums.",
    "text": "Text: is a film review positive, read byte by byte?",
    "retrieval": "Retrieval: are two documents related, each read by itself?",
    "image": "Image: which of ten things does a grey picture show, read pixel by pixel?",
    "pathfinder": "Pathfinder: do two discs lie on the same dashed curve?",
}
LONG_RANGE_TASKS = tuple(TASK_TITLES)


@dataclass(frozen=True)
class LongRangeConfig(SequenceConfig):
    """Everything that decides a run on a task of Long Range Arena, apart from data, versions and hardware."""

    task: str = option("listops", f"one of: {', '.join(LONG_RANGE_TASKS)}")
    pair_features: PairFeatures = option("products", "retrieval: products (x, y, xy, x − y) or concatenation (x, y)")
    quirks: bool = option(False, "the quirks of the paper's pipeline: see the page on long-range tasks")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, dict.fromkeys(LONG_RANGE_TASKS))
        check_choice("pair_features", self.pair_features, PairFeatures)

    @property
    def is_image(self) -> bool:
        """Whether tokens are pixels."""
        return self.task in ("image", "pathfinder")

    @property
    def is_chosen_on_test(self) -> bool:
        """With the pipeline's quirks, text has no dev of its own."""
        return self.quirks and self.task == "text"

    def encoding(self, first_id: int) -> Encoding:
        """How this run turns symbols into tokens."""
        return Encoding(first_id, self.length, self.is_image, self.quirks, self.quirks)

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A classifier of documents, or of pairs of them."""
        encoder, n_classes = self.make_encoder(info["vocab_size"], self.length), len(info["class_names"])
        if info["n_documents"] == 2:
            return DualEncoder(
                encoder, n_classes, self.d_hidden, pair_features=self.pair_features, is_padded_mean=self.quirks
            )
        return SequenceClassifier(encoder, n_classes, self.d_hidden, is_padded_mean=self.quirks)

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Examples whose symbols are tokens already."""
        prepared = prepared or self.open_prepared()
        splits = {name: self.split_of(prepared, name) for name in prepared.splits}
        info = {name: prepared.info[name] for name in INFO}
        encoding = self.encoding(info["first_id"])
        feeds = {name: ExampleFeed(split, encoding) for name, split in splits.items()}
        labels = {name: split.labels for name, split in splits.items()}
        info["n_train"] = len(feeds["train"])
        return TaskData(dict(feeds), info, labels, extras=splits["test"].extras)


_TABLE_7 = {  # length, batch size, learning rate, steps, warm-up, evaluation every so many steps
    "listops": (2048, 128, 5e-4, 5000, 1000, 50),
    "text": (3072, 128, 5e-4, 20000, 8000, 500),
    "retrieval": (4096, 32, 1e-4, 30000, 800, 300),
    "image": (1024, 1024, 5e-4, 35000, 175, 175),
    "pathfinder": (1024, 1024, 5e-4, 62400, 312, 312),
}
_COLUMNS = ("length", "batch_size", "learning_rate", "steps", "warmup_steps", "eval_every")
PAPER = {
    task: LongRangeConfig(task=task, **dict(zip(_COLUMNS, row, strict=True)))  # type: ignore[arg-type]
    for task, row in _TABLE_7.items()
}
"""The paper's Table 7. It does not give warm-up and evaluations, which are those of the pipeline that it uses."""

_REDUCED: dict[str, dict[str, Any]] = {
    "listops": {"data": "listops-reduced", "length": 100, "steps": 1200},
    "text": {"length": 256, "steps": 600, "dev_examples": 1000, "test_examples": 4000},
    "retrieval": {"data": "retrieval-reduced", "length": 128, "steps": 600, "learning_rate": 2e-3},
    "image": {"data": "image-lossy", "length": 256, "steps": 600},
    "pathfinder": {"length": 144, "batch_size": 64, "steps": 1000, "learning_rate": 2e-3, "quirks": True}
    | {"data": "pathfinder-reduced"},  # with black pixels as tokens, 1500 steps stay at chance
}
_SMALL: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 100, "eval_every": 100}
_SMALL |= {"embedding_std": 0.3, "dropout": 0.0, "attention_dropout": 0.0}
_SMALL["option_defaults"] = (("n_clusters", 32), ("n_features", 64), ("n_landmarks", 64), ("n_projected", 64))
_SMALL["options"] = None  # anew, from these defaults
REDUCED = {task: replace(PAPER[task], **_SMALL | settings) for task, settings in _REDUCED.items()}
"""Settings that one CPU core trains in minutes: shorter documents, smaller images, fewer steps, no dropout."""
