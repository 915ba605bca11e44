"""Batches of prepared examples, each of which depends on its number alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import isqrt

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.prepared import Split


@dataclass(frozen=True, eq=False)
class Batch:
    """What a model reads, and what it should answer.

    Attributes:
        tokens: int64 ``(batch, n)``, for pairs of documents ``(batch, 2, n)``; padding after the end of a document.
        mask: bool of the same shape, True = real token.
        labels: int64, one per example; with ``selected`` one per selected token, row by row.
        number: Which batch of the training it is, from 0.
        first_example: How many examples of the same batch other processes hold before these.
        selected: Which tokens are asked for, bool ``(batch, n)``; None asks for a label per example.
        weight: Share of the labels of the whole batch that is here, times the number of processes that hold it: mean
            losses times their weights have the whole batch's mean loss as their mean.
    """

    tokens: Int[Tensor, "batch *documents n"]
    mask: Bool[Tensor, "batch *documents n"]
    labels: Int[Tensor, " labels"]
    number: int = 0
    first_example: int = 0
    selected: Bool[Tensor, "batch n"] | None = None
    weight: float = 1.0

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        names = ("tokens", "mask", "labels") + (() if self.selected is None else ("selected",))
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})


@dataclass(frozen=True)
class Encoding:
    """How symbols become tokens.

    Attributes:
        first_id: Token id of symbol 0.
        length: Tokens kept of a document; for images the number of pixels, smaller ones being block means.
        is_image: Whether symbols are pixels.
        is_padded_to_length: Whether every batch is ``length`` long, as in the pipeline that the paper uses, instead of
            as long as its longest document.
        is_zero_padding: Whether id 0 counts as padding wherever it occurs, black pixels included, as in that pipeline.
        padding_id: Token id after the end of a document.
    """

    first_id: int
    length: int
    is_image: bool = False
    is_padded_to_length: bool = False
    is_zero_padding: bool = False
    padding_id: int = 0


def make_batch(split: Split, examples: NDArray[np.int64], encoding: Encoding) -> Batch:
    """Encodes examples of a split.

    Args:
        split: Where they are.
        examples: Their numbers in the split, in order.
        encoding: How symbols become tokens.

    Raises:
        SbmtError: If an image cannot be brought to the length asked for.
    """
    documents = [document for example in examples.tolist() for document in split.documents(example)]
    if encoding.is_image:
        documents = [shrink_image(document, encoding.length) for document in documents]
    documents = [document[: encoding.length] for document in documents]
    longest = encoding.length if encoding.is_padded_to_length else max(1, *(len(d) for d in documents))
    tokens = np.full((len(documents), longest), encoding.padding_id, np.int64)
    is_real = np.zeros((len(documents), longest), np.bool_)
    for row, document in enumerate(documents):
        tokens[row, : len(document)] = document
        is_real[row, : len(document)] = True
    tokens[is_real] += encoding.first_id
    if encoding.is_zero_padding:
        is_real = tokens != 0
    n_documents = split.lengths.shape[1]
    shape = (len(examples), longest) if n_documents == 1 else (len(examples), n_documents, longest)
    tensors = torch.from_numpy(tokens).reshape(shape), torch.from_numpy(is_real).reshape(shape)
    return Batch(*tensors, torch.from_numpy(np.asarray(split.labels[examples], np.int64)))


def shrink_image(pixels: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    """A square image with ``length`` pixels: means over blocks, rounded; as it is if it has so many already.

    Raises:
        SbmtError: If the sides do not divide.

    Example:
        >>> pixels = np.array([0, 2, 8, 8, 4, 6, 8, 9, 0, 0, 1, 1, 0, 0, 1, 1], np.uint8)
        >>> shrink_image(pixels, 4).tolist()
        [3, 8, 0, 1]
    """
    side, small = isqrt(len(pixels)), isqrt(length)
    if side * side != len(pixels) or small * small != length or small == 0 or side % small:
        raise SbmtError(f"a length that divides a square of {len(pixels)} pixels", length, "take 1024, 256 or 64")
    if side == small:
        return pixels
    step = side // small
    blocks = pixels.reshape(small, step, small, step).astype(np.int64)
    means: NDArray[np.uint8] = ((blocks.sum((1, 3)) + step * step // 2) // (step * step)).astype(np.uint8)
    return means.ravel()


def training_examples(n_examples: int, batch_size: int, seed: int, number: int) -> NDArray[np.int64]:
    """Which examples batch ``number`` holds: a slice of one permutation of all of them after the other.

    Permutation e depends on (seed, e) alone, so training can begin at any batch.

    Example:
        >>> both = [training_examples(5, 3, 0, number) for number in range(2)]
        >>> sorted(np.concatenate(both)[:5].tolist())
        [0, 1, 2, 3, 4]
    """
    check_sizes(n_examples=n_examples, batch_size=batch_size)
    places = np.arange(number * batch_size, (number + 1) * batch_size)
    epochs = places // n_examples
    return np.concatenate(
        [_permutation(n_examples, seed, e)[places[epochs == e] % n_examples] for e in np.unique(epochs).tolist()]
    )


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(n)


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
