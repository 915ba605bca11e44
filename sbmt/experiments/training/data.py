"""What a run reads: feeds that make batches by number, and streams of them that divide among processes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from sbmt.experiments.data import batches
from sbmt.experiments.data.batches import Batch, Encoding, make_batch
from sbmt.experiments.data.corpus import Blocks, make_masked_batch
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.tokenizer import Tokenizer

Numbers = NDArray[np.int64]
ExamplesOf = Callable[[int], Numbers | None]
"""The examples of batch 0, 1, …; None after the last."""
Sample = Callable[[int, torch.Generator], Batch]
"""Draws that many sequences. Drawn all at once or one after the other, they are the same."""

INFO = ("name", "task", "origin", "sha256", "class_names", "vocab_size", "first_id", "n_documents", "settings")
"""What results record of prepared examples."""


class Feed(ABC):
    """A split, from which batches are made by number. The orders given here suit prepared examples."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, examples: Numbers, part: slice, number: int) -> Batch:
        """A part of batch ``number``, which holds these examples; the number decides what is drawn."""

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """The batches of training: permutations of all examples, one after the other."""
        return lambda number: batches.training_examples(len(self), batch_size, seed, number)

    def in_order(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """The first ``n_examples`` in order, each exactly once; None means all."""
        n = min(len(self), n_examples or len(self))
        starts = range(0, n, batch_size)
        return lambda i: np.arange(starts[i], min(starts[i] + batch_size, n)) if i < len(starts) else None

    def once(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """The same in whatever order is fastest."""
        return self.in_order(batch_size, n_examples)


@dataclass(frozen=True, eq=False)
class ExampleFeed(Feed):
    """Labelled examples. Where those of similar length share a batch, there is less padding."""

    split: Split
    encoding: Encoding  # how symbols become tokens
    is_by_length: bool = False

    def __len__(self) -> int:
        return len(self.split)

    @cached_property
    def _lengths(self) -> Numbers:
        return np.asarray(self.split.lengths[self.split.indices].sum(1))

    def batch(self, examples: Numbers, part: slice, number: int) -> Batch:
        """A part of a batch; nothing in it is drawn."""
        return make_batch(self.split, examples[part], self.encoding)

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """Permutations of all examples."""
        if self.is_by_length:
            return batches.batches_by_length(self._lengths, batch_size, seed)
        return super().endless(batch_size, seed)

    def once(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """The first ``n_examples``, from short to long if those of similar length share a batch."""
        if self.is_by_length:
            return batches.once_by_length(self._lengths[:n_examples], batch_size)
        return super().once(batch_size, n_examples)


@dataclass(frozen=True, eq=False)
class BlockFeed(Feed):
    """Blocks of a corpus; the seed and a batch's number decide which tokens have to be guessed."""

    blocks: Blocks
    tokenizer: Tokenizer
    seed: int

    def __len__(self) -> int:
        return len(self.blocks)

    def batch(self, examples: Numbers, part: slice, number: int) -> Batch:
        """A part of a batch; tokens are selected and masked anew each time a block comes round."""
        return make_masked_batch(self.blocks, examples, part, self.tokenizer, (self.seed, number))


@dataclass(eq=False)
class SequenceFeed(Feed):
    """Generated sequences, drawn one after the other from one generator, which skips to the first of a batch."""

    sample: Sample
    seed: int  # of the generator
    n_sequences: int  # of an evaluation that does not say how many

    def __post_init__(self) -> None:
        self._generator, self._next = torch.Generator().manual_seed(self.seed), 0

    def __len__(self) -> int:
        return self.n_sequences

    def batch(self, examples: Numbers, part: slice, number: int) -> Batch:
        """A part of a batch of consecutive sequences."""
        here = examples[part]
        if here[0] < self._next:
            self.__post_init__()
        while n_skipped := min(int(here[0]) - self._next, 64):
            self.sample(n_skipped, self._generator)
            self._next += n_skipped
        self._next += len(here)
        return self.sample(len(here), self._generator)

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """New sequences for every batch; they depend on the feed's own seed."""
        return lambda number: np.arange(number * batch_size, (number + 1) * batch_size)

    def in_order(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """The first sequences in order, as many as are asked for."""
        return Feed.in_order(replace(self, n_sequences=n_examples or self.n_sequences), batch_size, None)


@dataclass(frozen=True, eq=False)
class TaskData:
    """What a run reads."""

    feeds: dict[str, Feed]  # train, dev where the task has it, test, and further splits that are tested
    info: dict[str, Any] = field(default_factory=dict)  # what results record of prepared examples
    labels: dict[str, Numbers] = field(default_factory=dict)  # by split, where the examples have one each
    tokenizer: Tokenizer | None = None  # of tasks on text in words
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)  # what test examples say besides their labels

    @property
    def tests(self) -> list[str]:
        """The splits that a finished run is tested on; the first is ``test``."""
        return [name for name in self.feeds if name not in ("train", "dev")]


class BatchStream(IterableDataset[Batch]):
    """Batches by number from ``first`` on, of which each of ``n_ranks`` processes makes its own slice."""

    def __init__(self, feed: Feed, examples_of: ExamplesOf, *, rank: int = 0, n_ranks: int = 1, first: int = 0) -> None:
        self.feed, self.examples_of = feed, examples_of
        self.rank, self.n_ranks, self.first = rank, n_ranks, first

    def __iter__(self) -> Iterator[Batch]:
        number = self.first
        while (examples := self.examples_of(number)) is not None:
            start, stop = (len(examples) * r // self.n_ranks for r in (self.rank, self.rank + 1))
            if stop > start:
                batch = self.feed.batch(examples, slice(start, stop), number)
                yield replace(batch, number=number, first_example=start)
            number += 1
