"""Settings of pre-training a masked language model and fine-tuning it on GLUE: the paper's, and reduced ones."""

import hashlib
import sys
from dataclasses import asdict, dataclass, fields, replace
from math import ceil, exp, inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from sbmt.errors import SbmtError, check_choice, choose
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.data.corpus import blocks_of
from sbmt.experiments.data.glue import GLUE, encode_split
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, Split
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import load_weights, read_json, read_tensors
from sbmt.experiments.training.config import TrainingConfig, family_defaults
from sbmt.experiments.training.data import INFO, BlockFeed, ExampleFeed, TaskData
from sbmt.experiments.training.tasks.sequence import SequenceConfig
from sbmt.models import MaskedLM, SentenceClassifier
from sbmt.models.heads import Pooling
from sbmt.registration import option

if TYPE_CHECKING:
    from torchmetrics import Metric

GLUE_TASKS = tuple(GLUE)
MLM = "mlm"
TOKENIZER = "tokenizer.json"
_EVALUATION = 1 << 62  # no training is seeded with so large a number
_COUNTED = 1 << 24  # tokens of the training text whose frequencies are counted
_LARGEST_LOG = log(sys.float_info.max)
EPOCHS = 5
"""Passes of fine-tuning over the examples in the paper's Table 7."""

REDUCED_EPOCHS = {"sst2": 1, "qqp": 3, "mnli": 3, "qnli": 3}
"""Passes of the reduced runs, which train on all of SST-2 and on subsets of the other tasks."""

REDUCED_EXAMPLES = 70_000
"""Most examples of a pass of the reduced runs, where the whole task is prepared instead of its subset."""


def perplexity(loss: float) -> float:
    """The exponential of a loss; infinite where that is more than a floating-point number holds."""
    return exp(loss) if loss <= _LARGEST_LOG else inf


@dataclass(frozen=True)
class LanguageConfig(SequenceConfig):
    """What pre-training and fine-tuning share: the network of the paper's Table 7, and a window joined to its masks."""

    length: int = option(512, "tokens of a sequence, start and end included")
    option_defaults: tuple[tuple[str, Any], ...] = family_defaults(window=64)
    weight_decay: float = option(0.01, "AdamW's weight decay")
    d_model: int = option(512, "width")
    d_hidden: int = option(2048, "width inside the MLPs")
    n_heads: int = option(8, "heads per layer")
    n_layers: int = option(4, "layers")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 3:
            raise SbmtError("length ≥ 3: start, end, and a token between them", self.length, "give a larger length")


@dataclass(frozen=True)
class MlmConfig(LanguageConfig):
    """Everything that decides a run of pre-training, apart from text, tokeniser, versions and hardware."""

    task: str = option(MLM, "always mlm")
    data: str = option("corpus", "name of the prepared corpus")
    batch_size: int = option(256, "blocks per optimiser step, over all devices")
    steps: int = option(250_000, "optimiser steps")
    warmup_steps: int = option(2500, "steps over which the learning rate rises; then it falls, both along a line")
    eval_every: int = option(5000, "steps between two evaluations on dev, each of which leaves a checkpoint")
    learning_rate: float = option(1e-4, "AdamW's largest learning rate")

    best_by = "loss"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, {MLM: None})

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A masked language model."""
        return MaskedLM(self.make_encoder(info["vocab_size"], self.length))

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Blocks of the corpus; training hides other tokens each time, evaluations always hide the same ones."""
        prepared = prepared or self.open_prepared()
        tokenizer = tokenizer or Tokenizer.load(prepared.folder / TOKENIZER)
        feeds = {}
        for name in prepared.splits:
            blocks = blocks_of(self.split_of(prepared, name), self.length, tokenizer)
            feeds[name] = BlockFeed(blocks, tokenizer, self.seed if name == "train" else _EVALUATION)
        info = {name: prepared.info[name] for name in INFO}
        info |= {"tokenizer": tokenizer.sha256, "n_train": len(feeds["train"])}
        return TaskData(dict(feeds), info, tokenizer=tokenizer)

    def metrics_of(self, loss: float) -> dict[str, float]:
        """Perplexity, e to the loss."""
        return {"perplexity": perplexity(loss)}

    def baselines(self, data: TaskData, name: str, test: Any) -> dict[str, Any]:
        """How well the frequencies of tokens in training's text alone do on the test blocks."""
        train, blocks = (data.feeds[split].blocks for split in ("train", name))  # type: ignore[attr-defined]
        n_test = min(len(blocks), self.test_examples or len(blocks))
        counts = np.bincount(train.symbols[:_COUNTED], minlength=data.info["vocab_size"]) + 1.0
        tokens = blocks.symbols[: n_test * (blocks.length - 2)]
        loss = float(-np.log(counts / counts.sum())[tokens].mean())
        alone = {"perplexity": perplexity(loss), "accuracy": float((tokens == counts.argmax()).mean())}
        return {"n_test": n_test, "frequencies": alone}


@dataclass(frozen=True)
class GlueConfig(LanguageConfig):
    """Everything that decides a run of fine-tuning, apart from data, pre-trained weights, versions and hardware.

    Raises:
        SbmtError: If a value is out of range, or nothing says how text becomes tokens.
    """

    task: str = option("sst2", f"one of: {', '.join(GLUE_TASKS)}")
    pretrained: str = option("", "folder of the pre-training run to start from; weights drawn anew if left out")
    tokenizer: str = option("", "a tokenizer.json, where no pre-training run brings its own")
    pooling: Pooling = option("mean", "what the head reads: mean (of all tokens) or first (token)")
    batch_size: int = option(32, "examples per optimiser step, over all devices")
    learning_rate: float = option(3e-5, "AdamW's largest learning rate")
    quirks: bool = option(False, "choose the checkpoint by the examples that the result reports, as the pipeline does")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("task", self.task, dict.fromkeys(GLUE_TASKS))
        check_choice("pooling", self.pooling, Pooling)
        if bool(self.pretrained) == bool(self.tokenizer):
            do = "name a run of sbmt train mlm with --from, or a tokenizer.json with --tokenizer"
            raise SbmtError("either a pre-training run or a tokeniser", "both" if self.pretrained else "neither", do)

    @property
    def is_chosen_on_test(self) -> bool:
        """With the pipeline's quirks, the official dev examples choose the checkpoint and are reported."""
        return self.quirks

    def make_model(self, info: dict[str, Any]) -> nn.Module:
        """A classifier of sentences and pairs of them."""
        encoder = self.make_encoder(info["vocab_size"], self.length)
        return SentenceClassifier(encoder, len(info["class_names"]), pooling=self.pooling, dropout=self.dropout)

    def start_from(self, model: nn.Module) -> dict[str, Any]:
        """The encoder of the pre-training run, if one is named."""
        if not self.pretrained:
            return {}
        return {"pretrained": load_pretrained(model.get_submodule("encoder"), Path(self.pretrained), self)}

    def open_data(
        self, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None, test_seed: int = 0
    ) -> TaskData:
        """Sentences as tokens of the pre-training run's tokeniser, or of the one that is named."""
        prepared = prepared or self.open_prepared()
        tokenizer = tokenizer or self._find_tokenizer()
        splits = {name: self.split_of(prepared, name) for name in prepared.splits}
        encoded = {name: encode_split(split, tokenizer, self.length) for name, split in splits.items()}
        feeds = {name: self.feed(tokenizer, split) for name, (split, _) in encoded.items()}
        info = {name: prepared.info[name] for name in INFO}
        info |= {"vocab_size": tokenizer.vocab_size, "first_id": 0, "n_documents": 1}
        info |= {"n_cut": {name: n_cut for name, (_, n_cut) in encoded.items()}}
        info |= {"tokenizer": tokenizer.sha256, "n_train": len(feeds["train"])}
        labels = {name: split.labels for name, split in splits.items()}
        return TaskData(dict(feeds), info, labels, tokenizer, splits["test"].extras)

    def feed(self, tokenizer: Tokenizer, split: Split) -> ExampleFeed:
        """Encoded examples, those of similar length in one batch."""
        return ExampleFeed(split, Encoding(0, self.length, padding_id=tokenizer.padding_id), is_by_length=True)

    def _find_tokenizer(self) -> Tokenizer:
        if not self.pretrained:
            return Tokenizer.load(Path(self.tokenizer))
        folder = Path(self.pretrained)
        settings = read_json(folder / "config.json") if (folder / "result.json").exists() else {}
        if not isinstance(settings, dict):
            do = "restore the file, or train again"
            raise SbmtError(f"settings in {folder / 'config.json'}", type(settings).__name__, do)
        if settings.get("task") != MLM:
            raise SbmtError("the folder of a finished pre-training run", folder, "train one with: sbmt train mlm")
        return tokenizer_of(folder)

    def make_metrics(self, n_classes: int) -> "dict[str, Metric]":
        """F1 of several kinds."""
        from sbmt.experiments.training.f1 import glue_metrics

        return glue_metrics(n_classes)


def tokenizer_of(folder: Path) -> Tokenizer:
    """The tokeniser of a finished run.

    Raises:
        SbmtError: If it is missing, damaged, or another one than the run was trained with.
    """
    tokenizer, result = Tokenizer.load(folder / TOKENIZER), read_json(folder / "result.json")
    try:
        is_same = result["data"]["tokenizer"] == tokenizer.sha256
    except (KeyError, TypeError) as error:
        raise SbmtError(f"the result of a run in {folder}", f"{error!r}", "train again") from error
    if not is_same:
        raise SbmtError(f"the tokeniser that the run in {folder} was trained with", tokenizer, "restore the file")
    return tokenizer


def load_pretrained(encoder: nn.Module, folder: Path, config: GlueConfig) -> dict[str, Any]:
    """Gives an encoder the weights of a pre-training run, and returns what results record of that run.

    If the run's position table is longer, its first rows are taken.

    Args:
        encoder: What to give them.
        folder: Where the run is.
        config: What the encoder was built from.

    Raises:
        SbmtError: If the run is missing or damaged, or its encoder is another one.
    """
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    state = {name.removeprefix("encoder."): x for name, x in tensors.items() if name.startswith("encoder.")}
    positions = "position_embedding.weight"
    if positions in state and positions in encoder.state_dict():
        state[positions] = state[positions][: encoder.state_dict()[positions].shape[0]]
    try:
        load_weights(encoder, state, folder)
    except SbmtError as error:
        if not (others := _differences(config, MlmConfig.from_dict(read_json(folder / "config.json")))):
            raise
        do = "leave these options out, or pre-train with them"
        raise SbmtError(f"the network of the run in {folder}", f"another {', '.join(others)}", do) from error
    result = read_json(folder / "result.json")
    try:
        perplexity = result["test"]["metrics"]["perplexity"]
    except (KeyError, TypeError) as error:
        raise SbmtError(f"the result of a pre-training run in {folder}", f"{error!r}", "train again") from error
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"folder": str(folder), "sha256": sha256, "perplexity": perplexity}


ANEW = {
    *("density_weight", "density_kind", "density_start", "density_ramp", "batch_size", "steps", "learning_rate"),
    *("embedding_std", "seed", "block_model_rate", "auxiliary_weight", "dense_steps", "edges_from", "edges_ramp"),
    *("task", "accumulate", "precision"),
}
"""Fields of every configuration that fine-tuning sets anew; it takes the others over from pre-training."""


def _differences(config: GlueConfig, start: MlmConfig) -> list[str]:
    """Names of the settings in which a network is not that of a pre-training run; a shorter length is none."""
    names = [f.name for f in fields(TrainingConfig) if f.name not in ANEW and f.compare]
    changed = [name for name in names if getattr(config, name) != getattr(start, name)]
    if "attention" not in changed and "options" in changed:
        before = asdict(start.options)
        changed += [name for name, value in asdict(config.options).items() if value != before[name]]
    return [name for name in changed if name != "options" and (name != "length" or config.length > start.length)]


def fine_tuning(task: str, pretrained: str, config: MlmConfig, **settings: Any) -> GlueConfig:
    """The paper's settings of fine-tuning, with the network of a pre-training run.

    Args:
        task: ``sst2``, ``qqp``, ``mnli`` or ``qnli``.
        pretrained: Folder of the pre-training run.
        config: Its configuration.
        **settings: Fields that differ.
    """
    network = {f.name: getattr(config, f.name) for f in fields(TrainingConfig) if f.name not in ANEW}
    return GlueConfig(**network | {"task": task, "pretrained": pretrained} | settings)


def epochs_of(config: GlueConfig, n_train: int, epochs: int | None = None, *, is_reduced: bool = False) -> GlueConfig:
    """A configuration whose steps amount to a number of passes over the examples.

    The first twentieth of the steps is warm-up, and dev is evaluated after every pass, as in the paper's pipeline.

    Args:
        config: The configuration of fine-tuning.
        n_train: Number of training examples.
        epochs: Number of passes; None takes the paper's, or that of the reduced runs.
        is_reduced: Whether this is a reduced run.
    """
    if epochs is None:
        epochs = REDUCED_EPOCHS[config.task] if is_reduced else EPOCHS
    if epochs < 1:
        raise SbmtError("epochs ≥ 1", epochs, "train for one pass at least")
    if is_reduced:
        n_train = min(n_train, REDUCED_EXAMPLES)
    steps = ceil(n_train / config.batch_size)
    return replace(config, steps=epochs * steps, warmup_steps=epochs * steps // 20, eval_every=steps)


PAPER_MLM = MlmConfig()
"""The BERT column of Table 7. As in the paper's pipeline, each of its 50 epochs is 5,000 batches."""

REDUCED_MLM = MlmConfig(
    data="corpus-reduced",
    length=128,
    batch_size=16,
    steps=3000,
    warmup_steps=200,
    eval_every=500,
    learning_rate=2e-3,
    embedding_std=0.1,
    d_model=128,
    d_hidden=512,
    n_heads=4,
    n_layers=2,
    option_defaults=(("window", 16), ("n_clusters", 32), ("n_features", 32), ("n_landmarks", 32), ("n_projected", 32)),
    dropout=0.0,
    attention_dropout=0.0,
    dev_examples=400,
    test_examples=400,
)
"""Settings that one CPU core trains in minutes. The window is an eighth of the length, as in the paper."""


def reduced_settings(task: str) -> dict[str, Any]:
    """Settings of fine-tuning that differ for a reduced network: a subset if one is prepared, and a larger rate."""
    subset = f"{task}-subset"
    data = subset if (prepared_folder() / subset).is_dir() else task
    return {"data": data, "learning_rate": 5e-4, "dropout": 0.1}
