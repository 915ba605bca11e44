"""Tasks on prepared examples: Long Range Arena, masked and causal language modelling, and GLUE."""

import hashlib
from dataclasses import dataclass, fields, replace
from math import ceil, exp
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn

from sbmt.attention.dispatch import check_dropout
from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.data.corpus import Blocks, blocks_of, make_masked_batch, next_tokens
from sbmt.experiments.data.glue import GLUE, encode_split
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, Split, open_prepared
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import load_weights
from sbmt.experiments.training.config import CAUSAL, TrainingConfig
from sbmt.experiments.training.data import INFO, Feed, TaskData, example_feed
from sbmt.experiments.training.run import TOKENIZER, Run, load_run
from sbmt.layers.registry import option
from sbmt.models import CausalLM, DualEncoder, MaskedLM, SentenceClassifier, SequenceClassifier


@dataclass(frozen=True)
class PreparedConfig(TrainingConfig, steps=5000, d_model=64, d_hidden=128, n_heads=2, n_layers=2, embedding_std=0.02):
    """A run on prepared examples, trained by AdamW with a learning rate that rises and then falls linearly."""

    data: str = option("", "name of the prepared examples; by default, the task's name")
    length: int = option(2048, "maximum number of tokens per document, or number of pixels per image")
    batch_size: int = option(128, "examples per optimiser step, across all devices")
    warmup_steps: int = option(1000, "number of initial steps over which the learning rate rises linearly")
    eval_every: int = option(50, "number of steps between evaluations on dev, which are followed by checkpoints")
    learning_rate: float = option(5e-4, "AdamW's peak learning rate")
    weight_decay: float = option(0.0, "AdamW's weight decay")
    dropout: float = option(0.1, "dropout after embeddings, attention and MLPs")
    attention_dropout: float = option(0.1, "dropout on the attention weights")
    dev_examples: int | None = option(None, "number of dev examples to evaluate on; all by default")
    test_examples: int | None = option(None, "number of test examples to evaluate on; all by default")

    data_task: ClassVar = ""  # task for which the examples were prepared, if different

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps >= self.steps:
            raise SbmtError(f"warmup_steps in [0, {self.steps})", self.warmup_steps, "use fewer warm-up steps")
        check_dropout(self.dropout)
        check_dropout(self.attention_dropout)

    @property
    def data_name(self) -> str:
        """Name of the folder with the prepared examples."""
        return self.data or self.task

    @property
    def checkpoint_every(self) -> int:  # type: ignore[override]
        """``eval_every``, or ``steps`` if the run is shorter."""
        return min(self.eval_every, self.steps)

    def open_prepared(self) -> Prepared:
        """Opens the configured examples; raises SbmtError if they are missing or belong to a different task."""
        prepared = open_prepared(prepared_folder() / self.data_name)
        task = self.data_task or self.task
        if prepared.info["task"] != task:
            raise SbmtError(f"{task} examples in {prepared.folder}", prepared.info["task"], "choose other examples")
        return prepared

    def data_of(self, prepared: Prepared, feeds: dict[str, Feed], **info: Any) -> TaskData:
        """Returns the data of a run on prepared examples; ``info`` adds or replaces entries in their description."""
        known = {name: prepared.info[name] for name in INFO} | info | {"n_train": len(feeds["train"])}
        return TaskData(feeds, known, prepared.splits)

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """Returns Wilson's 95 % interval of the accuracy, and the accuracy of guessing the commonest training label."""
        from scipy.stats import binomtest

        labels = data.splits[name].labels[: self.test_examples]
        n, right = len(labels), round(test.accuracy * len(labels))
        bounds = [round(float(x), 4) for x in binomtest(right, n).proportion_ci(0.95, "wilson")]
        commonest = int(np.bincount(data.splits["train"].labels).argmax())
        return {"n_test": n, "interval": bounds, "chance": float((labels == commonest).mean())}


TASK_TITLES = {
    "listops": "ListOps: find the value of a nested expression of minima, maxima, medians and sums.",
    "text": "Text: decide whether a film review, read byte by byte, is positive.",
    "retrieval": "Retrieval: decide whether two documents, encoded separately, are related.",
    "image": "Image: classify a grey image, read pixel by pixel, into one of ten classes.",
    "pathfinder": "Pathfinder: decide whether two discs lie on the same dashed curve.",
}
LONG_RANGE_TASKS = tuple(TASK_TITLES)


@dataclass(frozen=True)
class LongRangeConfig(PreparedConfig, tasks=LONG_RANGE_TASKS):
    """A run on one of the Long Range Arena tasks."""

    quirks: bool = option(False, "reproduce the quirks of the paper's pipeline (see the page on long-range tasks)")

    @property
    def is_image(self) -> bool:  # type: ignore[override]
        """Whether tokens are pixels."""
        return self.task in ("image", "pathfinder")

    def encoding(self, first_id: int) -> Encoding:
        """Returns the rules by which this run converts symbols to tokens."""
        return Encoding(first_id, self.length, self.is_image, self.quirks, self.quirks)

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a classifier for documents or pairs of documents."""
        encoder, n_classes = self.make_encoder(info["vocab_size"]), len(info["class_names"])
        kind = DualEncoder if info["n_documents"] == 2 else SequenceClassifier
        return kind(encoder, n_classes, self.d_hidden, is_padded_mean=self.quirks)

    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """Opens the prepared examples, and makes a feed of every split."""
        prepared = self.open_prepared()
        encoding = self.encoding(prepared.info["first_id"])
        return self.data_of(prepared, {name: example_feed(split, encoding) for name, split in prepared.splits.items()})


_COLUMNS = ("length", "batch_size", "learning_rate", "steps", "warmup_steps", "eval_every")
_TABLE_7: dict[str, tuple[Any, ...]] = {
    "listops": (2048, 128, 5e-4, 5000, 1000, 50),
    "text": (3072, 128, 5e-4, 20000, 8000, 500),
    "retrieval": (4096, 32, 1e-4, 30000, 800, 300),
    "image": (1024, 1024, 5e-4, 35000, 175, 175),
    "pathfinder": (1024, 1024, 5e-4, 62400, 312, 312),
}
PAPER = {task: LongRangeConfig(task=task, **dict(zip(_COLUMNS, row, strict=True))) for task, row in _TABLE_7.items()}
"""The settings of the paper's Table 7; warm-up and evaluations, which it omits, follow the paper's pipeline."""

_REDUCED: dict[str, dict[str, Any]] = {
    "listops": {"data": "listops-reduced", "length": 100, "steps": 1200},
    "text": {"length": 256, "steps": 600, "dev_examples": 1000, "test_examples": 4000},
    "retrieval": {"data": "retrieval-reduced", "length": 128, "steps": 600, "learning_rate": 2e-3},
    "image": {"data": "image-lossy", "length": 256, "steps": 600},
    "pathfinder": {"length": 144, "batch_size": 64, "steps": 1000, "learning_rate": 2e-3, "quirks": True}
    | {"data": "pathfinder-reduced"},  # with black pixels as tokens, accuracy is at chance even after 1500 steps
}
_SMALL: dict[str, Any] = {"batch_size": 32, "learning_rate": 1e-3, "warmup_steps": 100, "eval_every": 100}
_SMALL |= {"embedding_std": 0.3, "dropout": 0.0, "attention_dropout": 0.0, "options": None}  # None: the defaults below
_SMALL["option_defaults"] = (("n_clusters", 32), ("n_features", 64), ("n_landmarks", 64), ("n_projected", 64))
REDUCED = {task: replace(PAPER[task], **_SMALL | settings) for task, settings in _REDUCED.items()}
"""Settings that train in minutes on one CPU core: shorter documents, smaller images, fewer steps, no dropout."""

GLUE_TASKS = tuple(GLUE)
MLM = "mlm"
_HIDDEN = 1 << 62  # seed of the tokens hidden in evaluations, larger than any training seed
_DO = "omit options that change the network, or pre-train with the same options"
_COUNTED = 1 << 24  # number of training tokens whose frequencies are counted
EPOCHS = 5  # epochs of fine-tuning in the paper's Table 7
REDUCED_EPOCHS = {"sst2": 1, "qqp": 3, "mnli": 3, "qnli": 3}  # for all of SST-2 and subsets of the other tasks
_TABLE_7_LANGUAGE: dict[str, Any] = {"d_model": 512, "d_hidden": 2048, "n_heads": 8, "n_layers": 4}
_TABLE_7_LANGUAGE |= {"weight_decay": 0.01, "option_defaults": (("window", 64),)}


@dataclass(frozen=True)
class LanguageConfig(PreparedConfig, **_TABLE_7_LANGUAGE):
    """Settings shared by pre-training and fine-tuning: the network of Table 7, with a window in its masks."""

    length: int = option(512, "number of tokens per sequence, including <s> and </s>")


_TABLE_7_MLM = dict(batch_size=256, steps=250_000, warmup_steps=2500, eval_every=5000, learning_rate=1e-4)


@dataclass(frozen=True)
class MlmConfig(LanguageConfig, tasks=(MLM,), data="corpus", **_TABLE_7_MLM):
    """A pre-training run. The defaults are BERT's in Table 7, with 50 epochs of 5,000 batches as in the pipeline."""

    head: ClassVar[type[MaskedLM | CausalLM]] = MaskedLM
    best_by: ClassVar = "loss"
    data_task = MLM

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a language model."""
        return self.head(self.make_encoder(info["vocab_size"]))

    def feed(self, blocks: Blocks, tokenizer: Tokenizer, is_training: bool) -> Feed:
        """Makes a feed of masked batches. In evaluations, the same tokens are always masked."""
        seed = self.seed if is_training else _HIDDEN
        return Feed(len(blocks), lambda i, part, number: make_masked_batch(blocks, i, part, tokenizer, (seed, number)))

    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """Opens the corpus and cuts it into blocks."""
        prepared = self.open_prepared()
        tokenizer = tokenizer or Tokenizer.load(prepared.folder / TOKENIZER)
        blocks = {name: blocks_of(split, self.length, tokenizer) for name, split in prepared.splits.items()}
        feeds = {name: self.feed(mine, tokenizer, name == "train") for name, mine in blocks.items()}
        data = self.data_of(prepared, feeds, tokenizer=tokenizer.sha256)
        return replace(data, blocks=blocks, tokenizer=tokenizer)

    def metrics_of(self, loss: float, predictions: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns the perplexity, which is e to the power of the loss."""
        return {"perplexity": exp(min(loss, 700.0))}  # finite, as JSON requires

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """Returns the test scores of a predictor based only on token frequencies in the training text."""
        train, blocks = data.blocks["train"], data.blocks[name]
        n_test = min(len(blocks), self.test_examples or len(blocks))
        counts = np.bincount(train.symbols[:_COUNTED], minlength=data.info["vocab_size"]) + 1.0
        tokens = blocks.symbols[: n_test * (blocks.length - 2)]
        loss = float(-np.log(counts / counts.sum())[tokens].mean())
        alone = {"perplexity": exp(loss), "accuracy": float((tokens == counts.argmax()).mean())}
        return {"n_test": n_test, "frequencies": alone}


_CPU: dict[str, Any] = {"d_model": 128, "d_hidden": 512, "n_heads": 4, "n_layers": 2, "embedding_std": 0.1}
_CPU |= {"data": "corpus-reduced", "dropout": 0.0, "attention_dropout": 0.0, "eval_every": 500}
_CPU_LANGUAGE = _CPU | {"length": 256, "batch_size": 32, "steps": 2000, "warmup_steps": 100, "learning_rate": 1e-3}
_CPU_MLM = _CPU | {"length": 128, "batch_size": 16, "steps": 3000, "warmup_steps": 200, "learning_rate": 2e-3}


@dataclass(frozen=True)
class LanguageModelConfig(MlmConfig, tasks=("language",), **CAUSAL, **_CPU_LANGUAGE):
    """Predict the next token of a corpus. The default network suits a CPU and a few megabytes of text."""

    convolution: int = option(0, "width in tokens of a convolution of the embeddings; 0 for none")
    head: ClassVar = CausalLM

    def feed(self, blocks: Blocks, tokenizer: Tokenizer, is_training: bool) -> Feed:
        """Makes a feed of blocks, in which every token but the first is predicted from the preceding ones."""
        return Feed(len(blocks), lambda examples, part, number: next_tokens(blocks, examples, part))


@dataclass(frozen=True)
class GlueConfig(LanguageConfig, tasks=GLUE_TASKS, batch_size=32, learning_rate=3e-5):
    """A fine-tuning run that starts from a pre-training run or from random weights."""

    pretrained: str = ""  # folder of the pre-training run that provides the weights, if any
    tokenizer: str = option("", "path of a tokenizer.json, if there is no pre-training run to provide it")

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.pretrained) == bool(self.tokenizer):
            got = "both" if self.pretrained else "neither"
            raise SbmtError("either a pre-training run or a tokeniser", got, "use either --from or --tokenizer")

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """Builds a classifier for sentences and sentence pairs."""
        encoder = self.make_encoder(info["vocab_size"])
        return SentenceClassifier(encoder, len(info["class_names"]), dropout=self.dropout)

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """Loads the encoder of the pre-training run, if any, and truncates its position table if this is too long."""
        if not self.pretrained:
            return {}
        run, folder, positions = self._open_pretrained(), Path(self.pretrained), "position_embedding.weight"
        encoder, state = model.get_submodule("encoder"), run.model.get_submodule("encoder").state_dict()
        if positions in state:
            state[positions] = state[positions][: self.length]
        try:
            load_weights(encoder, state, folder)
        except SbmtError as error:
            raise SbmtError(f"the network of the run in {folder}", f"a different one: {error.args[1]}", _DO) from error
        sha256 = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        perplexity = run.test.metrics.get("perplexity")
        return {"pretrained": {"folder": str(folder), "sha256": sha256, "perplexity": perplexity}}

    def _open_pretrained(self) -> Run:
        """Opens the pre-training run."""
        run = load_run(self.pretrained)
        if run.config.task != MLM:
            raise SbmtError("the folder of a pre-training run", self.pretrained, "train one with sbmt train mlm")
        return run

    def open_data(self, tokenizer: Tokenizer | None = None, test_seed: int = 0) -> TaskData:
        """Opens the sentences, and encodes them with the pre-training run's tokeniser or with the configured one."""
        prepared = self.open_prepared()
        if tokenizer is None:
            tokenizer = self._open_pretrained().tokenizer if self.pretrained else Tokenizer.load(Path(self.tokenizer))
        assert tokenizer is not None  # every run on tokenised text has one
        encoded = {name: encode_split(split, tokenizer, self.length)[0] for name, split in prepared.splits.items()}
        feeds = {name: self.feed(tokenizer, split) for name, split in encoded.items()}
        info = {"vocab_size": tokenizer.vocab_size, "first_id": 0, "n_documents": 1, "tokenizer": tokenizer.sha256}
        return replace(self.data_of(prepared, feeds, **info), tokenizer=tokenizer)

    def feed(self, tokenizer: Tokenizer, split: Split) -> Feed:
        """Makes a feed of encoded examples, which have similar lengths within each batch."""
        return example_feed(split, Encoding(0, self.length, padding_id=tokenizer.padding_id), is_by_length=True)

    def metrics_of(self, loss: float, predictions: Tensor, labels: Tensor) -> dict[str, float]:
        """Returns several kinds of F1."""
        from sbmt.experiments.training.f1 import glue_f1

        return glue_f1(predictions, labels, len(GLUE[self.task].written))


ANEW = {
    *("density_weight", "density_kind", "batch_size", "steps", "learning_rate", "block_model_rate"),
    *("embedding_std", "seed", "task", "accumulate", "precision"),
}
"""Fields that fine-tuning does not copy from pre-training."""


def fine_tuning(
    task: str, pretrained: str, start: TrainingConfig, epochs: int | None = None, is_reduced: bool = False, **more: Any
) -> GlueConfig:
    """Combines the network of a pre-training configuration with the paper's fine-tuning settings, unless overridden.

    A twentieth of the steps is warm-up, and dev is evaluated after each epoch, as in the paper. Reduced runs have
    fewer epochs, a higher learning rate, and a subset of the examples if one is prepared.
    """
    more = {name: value for name, value in more.items() if value is not None}
    if is_reduced:
        data = f"{task}-subset" if (prepared_folder() / f"{task}-subset").is_dir() else task
        more = {"data": data, "learning_rate": 5e-4, "dropout": 0.1} | more
    network = {f.name: getattr(start, f.name) for f in fields(TrainingConfig) if f.name not in ANEW}
    config = GlueConfig(**network | {"task": task, "pretrained": pretrained} | more)
    if epochs is None:
        epochs = REDUCED_EPOCHS[task] if is_reduced else EPOCHS
    check_sizes(epochs=epochs)
    steps = ceil(len(config.open_prepared().splits["train"]) / config.batch_size)
    return replace(config, steps=epochs * steps, warmup_steps=epochs * steps // 20, eval_every=steps)


PAPER_MLM = MlmConfig()
_SMALL_OPTIONS = ("window", 16), ("n_clusters", 32), ("n_features", 32), ("n_landmarks", 32), ("n_projected", 32)
REDUCED_MLM = MlmConfig(**_CPU_MLM, dev_examples=400, test_examples=400, option_defaults=_SMALL_OPTIONS)
"""Settings that train in minutes on one CPU core. The window is an eighth of the length, as in the paper."""
