"""Batches of examples of like length, so that little of a batch is padding."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.batches import training_examples

POOL_BATCHES = 64
"""Examples are sorted among those of so many batches."""


def _check(lengths: NDArray[np.int64], batch_size: int) -> None:
    check_sizes(batch_size=batch_size)
    if lengths.ndim != 1:
        raise SbmtError("one length per example", f"the shape {lengths.shape}", "add up the lengths of its documents")


def _pool(lengths: NDArray[np.int64], batch_size: int, seed: int, number: int) -> NDArray[np.int64]:
    """The batches of a pool, ``(64, batch_size)``."""
    n, size = len(lengths), POOL_BATCHES * batch_size
    examples = training_examples(n, size, seed, number)
    epochs = np.arange(number * size, (number + 1) * size) // n
    # Short to long in even epochs, long to short in odd ones: where two meet in a batch, their lengths are alike.
    signed = np.where(epochs % 2, -lengths[examples], lengths[examples])
    batches = examples[np.lexsort((signed, epochs))].reshape(POOL_BATCHES, batch_size)
    # The third number sets this apart from the permutations, which are drawn from two.
    shuffled: NDArray[np.int64] = np.random.Generator(np.random.PCG64([seed, number, 1])).permutation(batches)
    return shuffled


class _ByLength:
    """Keeps the last pool, so that it is sorted once for all of its batches."""

    def __init__(self, pool: Callable[[int], NDArray[np.int64]]) -> None:
        self.pool = pool
        self.kept: tuple[int, NDArray[np.int64]] | None = None

    def __call__(self, number: int) -> NDArray[np.int64]:
        pool, place = divmod(number, POOL_BATCHES)
        kept = self.kept
        if kept is None or kept[0] != pool:
            self.kept = kept = pool, self.pool(pool)
        return kept[1][place].copy()


def batches_by_length(lengths: NDArray[np.int64], batch_size: int, seed: int) -> Callable[[int], NDArray[np.int64]]:
    """Which examples batch 0, 1, … of a training hold; examples of like length share a batch.

    Examples come in the order of :func:`~sbmt.experiments.data.batches.training_examples`: one permutation of all
    after the other. That order is cut into pools of :data:`POOL_BATCHES` batches. Those of a pool that are of the same
    epoch are sorted by length; the pool is cut into batches, and these come in an order drawn by seed and pool. So
    every epoch has each example exactly once, and a number decides its batch alone: training can begin at any. Where
    an epoch ends within a pool, batches of the next may come before its last ones.

    Args:
        lengths: Tokens of every example, ``(n_examples,)``.
        batch_size: Examples per batch.
        seed: Decides every order.

    Returns:
        From a batch's number to its examples, ``(batch_size,)``. It can be sent to other processes.

    Raises:
        SbmtError: If there is no example, or a size is below 1.

    Cost: n log n for an epoch's permutation, and the sorting of a pool, each of them once in a row.

    Example:
        >>> examples_of = batches_by_length(np.repeat([7, 8, 9], 64), 3, seed=0)
        >>> seen = np.concatenate([examples_of(number) for number in range(64)])
        >>> sorted(seen.tolist()) == list(range(192))
        True
    """
    _check(lengths, batch_size)
    check_sizes(n_examples=len(lengths))
    return _ByLength(partial(_pool, lengths, batch_size, seed))


def _slice(order: NDArray[np.int64], batch_size: int, number: int) -> NDArray[np.int64] | None:
    examples = order[number * batch_size : (number + 1) * batch_size]
    return examples.copy() if len(examples) else None


def once_by_length(lengths: NDArray[np.int64], batch_size: int) -> Callable[[int], NDArray[np.int64] | None]:
    """Which examples batch 0, 1, … of an evaluation hold: each exactly once, from short to long.

    Args:
        lengths: Tokens of every example, ``(n_examples,)``.
        batch_size: Examples per batch; the last may have fewer.

    Returns:
        From a batch's number to its examples, None after the last. It can be sent to other processes.

    Raises:
        SbmtError: If the size is below 1.

    Example:
        >>> examples_of = once_by_length(np.array([5, 1, 9, 1, 5]), 2)
        >>> [examples_of(number) for number in range(4)]
        [array([1, 3]), array([0, 4]), array([2]), None]
    """
    _check(lengths, batch_size)
    return partial(_slice, np.argsort(lengths, kind="stable"), batch_size)
