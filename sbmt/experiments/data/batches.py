"""Batches of prepared examples. The content of a batch is determined by its number and the random seed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.prepared import Split
from sbmt.experiments.data.source import Ints, check_numbers


@dataclass(frozen=True, eq=False)
class Batch:
    """The inputs of a model and the labels to predict."""

    # (batch, n) by default, (batch, 2, n) for pairs of documents, (batch, n, …) if tokens are tuples of ids or vectors
    tokens: Int[Tensor, "batch *_"] | Float[Tensor, "batch *_"]
    mask: Bool[Tensor, "batch *documents n"]  # True = real token
    labels: Int[Tensor, " labels"]  # one per example or, if ``selected`` is given, one per selected token
    number: int = 0  # position of the batch in the run, counted from 0
    first_example: int = 0  # number of examples of the batch that precede these, in other processes
    selected: Bool[Tensor, "batch n"] | None = None  # the tokens to predict; None if each example has one label
    # If a batch is divided into parts: this part's share of all labels, times the number of parts. With the mean loss
    # of each part multiplied by this weight, the average over the parts is the mean loss of the whole batch.
    weight: float = 1.0

    def to(self, device: torch.device) -> "Batch":
        """Returns a copy of the batch on the given device."""
        names = ("tokens", "mask", "labels") + (() if self.selected is None else ("selected",))
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})


@dataclass(frozen=True)
class Encoding:
    """Rules for converting symbols to tokens. The two padding switches reproduce the behaviour of the paper's code."""

    first_id: int  # token id of symbol 0
    length: int  # maximum number of tokens per document; larger images are reduced to this number of pixels
    is_image: bool = False  # whether symbols are pixels
    is_padded_to_length: bool = False  # whether to pad to ``length`` instead of to the longest document in the batch
    is_zero_padding: bool = False  # whether id 0 always counts as padding, even if it is a black pixel
    padding_id: int = 0  # id that fills a row after the end of its document


def make_batch(split: Split, examples: Ints, encoding: Encoding) -> Batch:
    """Encodes the given examples of a split as a batch, in the given order."""
    examples = check_numbers(examples, len(split))
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
    shape = (len(examples), longest) if split.lengths.shape[1] == 1 else (len(examples), -1, longest)
    tensors = torch.from_numpy(tokens).reshape(shape), torch.from_numpy(is_real).reshape(shape)
    return Batch(*tensors, torch.from_numpy(np.asarray(split.labels[examples], np.int64)))


def shrink_image(pixels: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    """Reduces a square image to ``length`` pixels, each the rounded mean of a block of the original pixels."""
    side, small = isqrt(len(pixels)), isqrt(length)
    if side * side != len(pixels) or small * small != length or small == 0 or side % small:
        raise SbmtError(f"a length to which {len(pixels)} pixels can be reduced", length, "use 1024, 256 or 64")
    step = side // small
    sums = pixels.reshape(small, step, small, step).sum((1, 3), dtype=np.int64)
    means: NDArray[np.uint8] = ((sums + step * step // 2) // (step * step)).astype(np.uint8)
    return means.ravel()


def training_examples(n_examples: int, batch_size: int, seed: int, number: int) -> Ints:
    """Returns the example numbers of a training batch. Each epoch is a random permutation of all examples."""
    check_sizes(n_examples=n_examples, batch_size=batch_size)
    places = np.arange(number * batch_size, (number + 1) * batch_size)
    epochs = places // n_examples
    found = (_permutation(n_examples, seed, e)[places[epochs == e] % n_examples] for e in np.unique(epochs).tolist())
    return np.concatenate(list(found))


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Ints:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(n)


POOL_BATCHES = 64  # number of batches whose examples are sorted by length together


def batches_by_length(lengths: Ints, batch_size: int, seed: int) -> Callable[[int], Ints]:
    """Returns a function that maps a batch number to examples of similar length. Batches come in random order."""
    check_sizes(batch_size=batch_size, n_examples=len(lengths))
    n, size = len(lengths), POOL_BATCHES * batch_size

    @lru_cache(maxsize=1)
    def batches(pool: int) -> Ints:
        examples = training_examples(n, size, seed, pool)
        epochs = np.arange(pool * size, (pool + 1) * size) // n
        # Lengths rise in even epochs and fall in odd ones, so they stay similar in a batch that spans two epochs.
        signed = np.where(epochs % 2, -lengths[examples], lengths[examples])
        rows = examples[np.lexsort((signed, epochs))].reshape(POOL_BATCHES, batch_size)
        # The third number keeps these draws independent of the permutations, whose seeds have only two numbers.
        return np.random.Generator(np.random.PCG64([seed, pool, 1])).permutation(rows)

    return lambda number: batches(number // POOL_BATCHES)[number % POOL_BATCHES].copy()


def once(order: Ints, batch_size: int) -> Callable[[int], Ints | None]:
    """Returns a function that maps a batch number to consecutive entries of ``order``, or to None after the last."""
    check_sizes(batch_size=batch_size)
    starts = range(0, len(order), batch_size)
    return lambda i: order[starts[i] : starts[i] + batch_size].copy() if i < len(starts) else None
