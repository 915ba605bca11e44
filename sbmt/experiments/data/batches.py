"""Batches of prepared examples. A batch depends only on its number."""

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
    """The inputs of a model, and the labels that it has to predict."""

    # For pairs of documents (batch, 2, n), for tokens of several ids or vectors (batch, n, …).
    tokens: Int[Tensor, "batch *_"] | Float[Tensor, "batch *_"]
    mask: Bool[Tensor, "batch *documents n"]  # True = real token
    labels: Int[Tensor, " labels"]  # one per example; with ``selected`` one per selected token, row by row
    number: int = 0  # of the batch in training, from 0
    first_example: int = 0  # number of examples of the same batch before these, in other processes
    selected: Bool[Tensor, "batch n"] | None = None  # the tokens that have to be predicted; None: one label per example
    # This part's share of the whole batch's labels, times the number of parts: the mean over all parts of mean loss
    # times weight is the mean loss of the whole batch.
    weight: float = 1.0

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        names = ("tokens", "mask", "labels") + (() if self.selected is None else ("selected",))
        return replace(self, **{name: getattr(self, name).to(device, non_blocking=True) for name in names})


@dataclass(frozen=True)
class Encoding:
    """How symbols become tokens. The two switches about padding imitate the pipeline that the paper uses."""

    first_id: int  # token id of symbol 0
    length: int  # tokens that are kept of a document; for images the number of pixels to which larger ones are reduced
    is_image: bool = False  # whether symbols are pixels
    is_padded_to_length: bool = False  # whether every batch is this long, instead of as long as its longest document
    is_zero_padding: bool = False  # whether id 0 is padding wherever it occurs, black pixels included
    padding_id: int = 0  # follows the end of a document


def make_batch(split: Split, examples: Ints, encoding: Encoding) -> Batch:
    """Encodes the examples of a split that have these numbers, in this order."""
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
    """Reduces a square image to ``length`` pixels by rounded means over blocks; it may have that size already."""
    side, small = isqrt(len(pixels)), isqrt(length)
    if side * side != len(pixels) or small * small != length or small == 0 or side % small:
        raise SbmtError(f"a length that divides a square of {len(pixels)} pixels", length, "use 1024, 256 or 64")
    step = side // small
    sums = pixels.reshape(small, step, small, step).sum((1, 3), dtype=np.int64)
    means: NDArray[np.uint8] = ((sums + step * step // 2) // (step * step)).astype(np.uint8)
    return means.ravel()


def training_examples(n_examples: int, batch_size: int, seed: int, number: int) -> Ints:
    """The examples of batch ``number``: a slice of the permutations of all examples that the seed determines."""
    check_sizes(n_examples=n_examples, batch_size=batch_size)
    places = np.arange(number * batch_size, (number + 1) * batch_size)
    epochs = places // n_examples
    found = (_permutation(n_examples, seed, e)[places[epochs == e] % n_examples] for e in np.unique(epochs).tolist())
    return np.concatenate(list(found))


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> Ints:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(n)


POOL_BATCHES = 64  # batches whose examples are sorted together


def batches_by_length(lengths: Ints, batch_size: int, seed: int) -> Callable[[int], Ints]:
    """A function from 0, 1, … to a training batch's examples, of similar length: pools are sorted, cut and shuffled."""
    check_sizes(batch_size=batch_size, n_examples=len(lengths))
    n, size = len(lengths), POOL_BATCHES * batch_size

    @lru_cache(maxsize=1)
    def batches(pool: int) -> Ints:
        examples = training_examples(n, size, seed, pool)
        epochs = np.arange(pool * size, (pool + 1) * size) // n
        # Short to long in even epochs, long to short in odd ones: where two meet in a batch, their lengths are similar.
        signed = np.where(epochs % 2, -lengths[examples], lengths[examples])
        rows = examples[np.lexsort((signed, epochs))].reshape(POOL_BATCHES, batch_size)
        # The third number makes this independent of the permutations, whose seeds have only two.
        return np.random.Generator(np.random.PCG64([seed, pool, 1])).permutation(rows)

    return lambda number: batches(number // POOL_BATCHES)[number % POOL_BATCHES].copy()


def once(order: Ints, batch_size: int) -> Callable[[int], Ints | None]:
    """A function from 0, 1, … to the examples of an evaluation batch, in this order, and then to None."""
    check_sizes(batch_size=batch_size)
    starts = range(0, len(order), batch_size)
    return lambda i: order[starts[i] : starts[i] + batch_size].copy() if i < len(starts) else None
