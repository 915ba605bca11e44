"""Streams of batches that begin anywhere and divide among processes."""

from collections.abc import Iterator
from dataclasses import replace

from torch.utils.data import IterableDataset

from sbmt.experiments.data.batches import Batch
from sbmt.experiments.training.task_data import ExamplesOf, Feed


class BatchStream(IterableDataset[Batch]):
    """Batches by number, of which one process makes its own slice.

    Args:
        feed: Where the examples are.
        examples_of: The examples of batch 0, 1, …; None after the last.
        rank: Number of this process.
        n_ranks: Number of processes.
        first: Number of the first batch.
    """

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
