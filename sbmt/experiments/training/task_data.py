"""A task's examples as a run sees them: which split is which, how text becomes tokens, which batches there are."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import (
    Batch,
    Encoding,
    batches_by_length,
    make_batch,
    once_by_length,
    training_examples,
)
from sbmt.experiments.data.glue.sentence_pairs import encode_split
from sbmt.experiments.data.language.masked_blocks import Blocks, blocks_of, make_masked_batch
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.data.locate import prepared_folder
from sbmt.experiments.data.prepared import Prepared, Split, open_prepared
from sbmt.experiments.files import read_json
from sbmt.experiments.training.kinds import read_config
from sbmt.experiments.training.language import GlueConfig, MlmConfig
from sbmt.experiments.training.long_range import LongRangeConfig
from sbmt.experiments.training.sequence_config import SequenceConfig

ExamplesOf = Callable[[int], NDArray[np.int64] | None]
"""The examples of batch 0, 1, …; None after the last."""

TOKENIZER = "tokenizer.json"
_INFO = ("name", "task", "origin", "sha256", "class_names", "vocab_size", "first_id", "n_documents", "settings")
_EVALUATION = 1 << 62  # no training is seeded with a number so large


@runtime_checkable
class Feed(Protocol):
    """A split, from which batches are made by number."""

    def __len__(self) -> int:
        """How many examples."""

    def batch(self, examples: NDArray[np.int64], part: slice, number: int) -> Batch:
        """A part of batch ``number``, which holds these examples; the number decides what is drawn."""

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """The batches of training."""

    def once(self, batch_size: int, n_examples: int) -> ExamplesOf:
        """The batches of an evaluation: each of the first ``n_examples`` exactly once."""


def in_order(n_examples: int, batch_size: int) -> ExamplesOf:
    """The first ``n_examples`` in order, each exactly once."""

    def examples_of(number: int) -> NDArray[np.int64] | None:
        start = number * batch_size
        return np.arange(start, min(start + batch_size, n_examples)) if start < n_examples else None

    return examples_of


@dataclass(frozen=True, eq=False)
class ExampleFeed:
    """Labelled examples; see :class:`Feed`.

    Attributes:
        split: Where they are.
        encoding: How symbols become tokens.
        is_by_length: Whether examples of like length share a batch, which saves padding.
    """

    split: Split
    encoding: Encoding
    is_by_length: bool = False

    def __len__(self) -> int:
        """How many examples."""
        return len(self.split)

    @cached_property
    def _lengths(self) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = self.split.lengths[self.split.indices].sum(1)
        return lengths

    def batch(self, examples: NDArray[np.int64], part: slice, number: int) -> Batch:
        """A part of a batch; nothing in it is drawn."""
        return make_batch(self.split, examples[part], self.encoding)

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """Permutations of all examples, one after the other."""
        if self.is_by_length:
            return batches_by_length(self._lengths, batch_size, seed)
        return lambda number: training_examples(len(self), batch_size, seed, number)

    def once(self, batch_size: int, n_examples: int) -> ExamplesOf:
        """Each of the first ``n_examples`` exactly once."""
        if self.is_by_length:
            return once_by_length(self._lengths[:n_examples], batch_size)
        return in_order(n_examples, batch_size)


@dataclass(frozen=True, eq=False)
class BlockFeed:
    """Blocks of a corpus with tokens to be guessed; see :class:`Feed`.

    Attributes:
        blocks: Where they are.
        tokenizer: Whose tokens they are.
        seed: With a batch's number it decides which tokens are selected.
    """

    blocks: Blocks
    tokenizer: Tokenizer
    seed: int

    def __len__(self) -> int:
        """How many blocks."""
        return len(self.blocks)

    def batch(self, examples: NDArray[np.int64], part: slice, number: int) -> Batch:
        """A part of a batch; tokens are selected and masked anew whenever a block comes by."""
        return make_masked_batch(self.blocks, examples, part, self.tokenizer, (self.seed, number))

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """Permutations of all blocks, one after the other."""
        return lambda number: training_examples(len(self), batch_size, seed, number)

    def once(self, batch_size: int, n_examples: int) -> ExamplesOf:
        """The first blocks in order."""
        return in_order(n_examples, batch_size)


@dataclass(frozen=True, eq=False)
class TaskData:
    """What a run reads.

    Attributes:
        feeds: ``train``, ``dev``, ``test``, and further splits that are tested.
        info: What results record of it: name, origin, checksum, classes, vocabulary, settings, ``n_train``.
        labels: Of every split but MLM's: what chance is measured by.
        tokenizer: Of tasks on text in words; None of the others.
    """

    feeds: dict[str, Feed]
    info: dict[str, Any]
    labels: dict[str, NDArray[np.int64]]
    tokenizer: Tokenizer | None = None

    @property
    def tests(self) -> list[str]:
        """The splits that a finished run is tested on; the first is ``test``."""
        return [name for name in self.feeds if name not in ("train", "dev")]


def open_task(config: SequenceConfig) -> Prepared:
    """The prepared examples that a configuration names.

    Raises:
        SbmtError: If they are not there, or are another task's.
    """
    prepared = open_prepared(prepared_folder() / config.data_name)
    if prepared.info["task"] != config.task:
        raise SbmtError(f"examples of {config.task}", f"{prepared.info['task']} in {prepared.folder}", "name others")
    return prepared


def split_of(prepared: Prepared, config: SequenceConfig, name: str) -> Split:
    """A split as a run sees it: with some of the pipeline's quirks the test examples stand in for dev."""
    if config.is_chosen_on_test and name in ("train", "dev"):
        if name == "dev":
            return prepared.splits["test"]
        parts = prepared.splits["train"], prepared.splits["dev"]
        indices, labels = (np.concatenate([getattr(part, x) for part in parts]) for x in ("indices", "labels"))
        extras = {x: np.concatenate([part.extras[x] for part in parts]) for x in parts[0].extras}
        return Split(indices, labels, parts[0].symbols, parts[0].offsets, parts[0].lengths, extras)
    return prepared.splits[name]


def open_data(config: SequenceConfig, tokenizer: Tokenizer | None = None, prepared: Prepared | None = None) -> TaskData:
    """What a configuration's run reads.

    Args:
        config: Of the run.
        tokenizer: A finished run's own; None finds that of a new run.
        prepared: The examples; None opens what the configuration names.

    Raises:
        SbmtError: If examples or tokeniser are missing, damaged, or another task's.
    """
    prepared = prepared or open_task(config)
    splits = {name: split_of(prepared, config, name) for name in prepared.splits}
    labels = {name: split.labels for name, split in splits.items()}
    info = {name: prepared.info[name] for name in _INFO}
    feeds: dict[str, Feed]
    if isinstance(config, LongRangeConfig):
        encoding = config.encoding(info["first_id"])
        feeds = {name: ExampleFeed(split, encoding) for name, split in splits.items()}
    elif isinstance(config, MlmConfig):
        tokenizer = tokenizer or Tokenizer.load(prepared.folder / TOKENIZER)
        seeds = {"train": config.seed}
        feeds = {
            name: BlockFeed(blocks_of(split, config.length, tokenizer), tokenizer, seeds.get(name, _EVALUATION))
            for name, split in splits.items()
        }
        labels = {}
    else:
        tokenizer = tokenizer or find_tokenizer(config)
        encoded = {name: encode_split(split, tokenizer, config.length) for name, split in splits.items()}
        encoding = Encoding(0, config.length, padding_id=tokenizer.padding_id)
        feeds = {name: ExampleFeed(split, encoding, True) for name, (split, _) in encoded.items()}
        info |= {"vocab_size": tokenizer.vocab_size, "first_id": 0, "n_documents": 1}
        info["n_cut"] = {name: n_cut for name, (_, n_cut) in encoded.items()}
    if tokenizer is not None:
        info["tokenizer"] = tokenizer.sha256
    return TaskData(feeds, info | {"n_train": len(feeds["train"])}, labels, tokenizer)


def find_tokenizer(config: SequenceConfig) -> Tokenizer:
    """The tokeniser of the pre-training run that a configuration starts from, or the one that it names.

    Raises:
        SbmtError: If it is missing or damaged.
    """
    if not isinstance(config, GlueConfig):
        raise SbmtError("a configuration of a task", type(config).__name__, "take one of the named ones")
    if not config.pretrained:
        return Tokenizer.load(Path(config.tokenizer))
    folder = Path(config.pretrained)
    if not (folder / "result.json").exists() or not isinstance(read_config(folder), MlmConfig):
        raise SbmtError("the folder of a finished pre-training run", folder, "train one with: sbmt train mlm")
    return tokenizer_of(folder)


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
