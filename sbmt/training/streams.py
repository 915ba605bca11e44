"""Streams of batches that begin anywhere and divide among processes."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from sbmt.tasks.batches import Batch, Encoding, make_batch, training_examples
from sbmt.tasks.prepared import Split


class BatchStream(IterableDataset[Batch]):
    """Batches by number, of which one process makes its own slice.

    Args:
        split: Where the examples are.
        encoding: How symbols become tokens.
        examples_of: The examples of batch 0, 1, …; None after the last.
        rank: Number of this process.
        n_ranks: Number of processes.
        first: Number of the first batch.
    """

    def __init__(
        self,
        split: Split,
        encoding: Encoding,
        examples_of: Callable[[int], NDArray[np.int64] | None],
        *,
        rank: int = 0,
        n_ranks: int = 1,
        first: int = 0,
    ) -> None:
        self.split, self.encoding, self.examples_of = split, encoding, examples_of
        self.rank, self.n_ranks, self.first = rank, n_ranks, first

    def __iter__(self) -> Iterator[Batch]:
        number = self.first
        while (examples := self.examples_of(number)) is not None:
            start, stop = (len(examples) * r // self.n_ranks for r in (self.rank, self.rank + 1))
            if stop > start:
                batch = make_batch(self.split, examples[start:stop], self.encoding)
                yield Batch(batch.tokens, batch.mask, batch.labels, number, start)
            number += 1


def endless(split: Split, batch_size: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """The batches of training: see :func:`~sbmt.tasks.batches.training_examples`."""
    return lambda number: training_examples(len(split), batch_size, seed, number)


def once(n_examples: int, batch_size: int) -> Callable[[int], NDArray[np.int64] | None]:
    """The batches of an evaluation: the first ``n_examples`` in order, each exactly once."""

    def examples_of(number: int) -> NDArray[np.int64] | None:
        start = number * batch_size
        return np.arange(start, min(start + batch_size, n_examples)) if start < n_examples else None

    return examples_of
