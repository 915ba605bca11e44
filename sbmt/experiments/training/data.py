"""The data of a run: feeds, which make batches, and streams, which divide the batches among processes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from sbmt.experiments.data import batches
from sbmt.experiments.data.batches import Batch, Encoding, make_batch
from sbmt.experiments.data.corpus import Blocks
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.tokenizer import Tokenizer

Numbers = NDArray[np.int64]
ExamplesOf = Callable[[int], Numbers | None]
"""Maps the number of a batch, counted from 0, to its examples, or to None after the last batch."""

INFO = ("name", "task", "origin", "sha256", "class_names", "vocab_size", "first_id", "n_documents", "settings")
"""Facts about prepared examples that are recorded in results."""


@dataclass(frozen=True, eq=False)
class Feed:
    """A split of the data and a function that makes batches from it."""

    n_examples: int
    batch: Callable[[Numbers, slice, int], Batch]
    """Makes a slice of the batch of the given examples. The batch number, given last, determines random choices."""
    lengths: Numbers | None = None  # lengths of the examples if batches are sorted by length
    is_endless: bool = False  # whether examples are generated without limit

    def __len__(self) -> int:
        return self.n_examples

    def endless(self, batch_size: int, seed: int) -> ExamplesOf:
        """Returns an endless sequence of training batches, from permutations of all examples or from new examples."""
        if self.is_endless:
            return lambda number: np.arange(number * batch_size, (number + 1) * batch_size)
        if self.lengths is not None:
            return batches.batches_by_length(self.lengths, batch_size, seed)
        return lambda number: batches.training_examples(len(self), batch_size, seed, number)

    def in_order(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """Returns batches that contain the first ``n_examples`` examples once, in order; None means all examples."""
        n = n_examples or len(self)
        return batches.once(np.arange(n if self.is_endless else min(n, len(self))), batch_size)

    def once(self, batch_size: int, n_examples: int | None) -> ExamplesOf:
        """Returns batches of the same examples as :meth:`in_order`, sorted by length if the feed has lengths."""
        if self.lengths is None:
            return self.in_order(batch_size, n_examples)
        return batches.once(np.argsort(self.lengths[:n_examples], kind="stable"), batch_size)


def example_feed(split: Split, encoding: Encoding, *, is_by_length: bool = False) -> Feed:
    """Makes a feed of labelled examples, which are encoded as tokens."""
    lengths = np.asarray(split.lengths[split.indices].sum(1)) if is_by_length else None
    return Feed(len(split), lambda examples, part, _: make_batch(split, examples[part], encoding), lengths)


class Sequences:
    """Makes batches of consecutive sequences from one generator, skipping the sequences before each batch.

    ``sample`` draws a given number of sequences, which are the same whether drawn together or one by one.
    """

    def __init__(self, sample: Callable[[int, torch.Generator], Batch], seed: int) -> None:
        self.sample, self.generator, self.next = sample, torch.Generator().manual_seed(seed), 0

    def __call__(self, examples: Numbers, part: slice, number: int) -> Batch:
        """Makes the given part of a batch."""
        here = examples[part]
        if here[0] < self.next:
            self.generator.manual_seed(self.generator.initial_seed())
            self.next = 0
        while n_skipped := min(int(here[0]) - self.next, 64):
            self.sample(n_skipped, self.generator)
            self.next += n_skipped
        self.next += len(here)
        return self.sample(len(here), self.generator)


@dataclass(frozen=True, eq=False)
class TaskData:
    """The data of a run."""

    feeds: dict[str, Feed]  # train, test, and any dev or additional test splits
    info: dict[str, Any] = field(default_factory=dict)  # facts about prepared examples that results record
    splits: dict[str, Split] = field(default_factory=dict)  # the prepared examples of the feeds
    blocks: dict[str, Blocks] = field(default_factory=dict)  # blocks of a corpus, by split
    tokenizer: Tokenizer | None = None  # only for tasks on tokenised text


class BatchStream(IterableDataset[Batch]):
    """A stream of batches, starting with number ``first``. Each of ``n_ranks`` processes makes one slice of a batch."""

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
