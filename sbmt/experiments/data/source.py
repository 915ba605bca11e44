"""Where a task's examples come from: shards that are made one by one, in any order, and always the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbmt.errors import SbmtError

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "corpus", "sst2", "qqp", "mnli", "qnli")
"""What ``sbmt data prepare`` can prepare."""

SPLITS = ("train", "dev", "test")
"""Every task has these splits; some have further ones after them."""

Origin = Literal["official", "generated", "stand-in", "own"]
SymbolType = Literal["uint8", "uint16", "uint32"]
SYMBOL_TYPES: dict[str, np.dtype[Any]] = {name: np.dtype(name) for name in get_args(SymbolType)}
Symbols = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled documents, stored end to end.

    Raises:
        SbmtError: If the sizes do not match.
    """

    symbols: Symbols  # uint8, uint16 or uint32, all documents one after the other
    lengths: NDArray[np.int64]  # (n_examples, n_documents), the number of symbols of each document
    labels: NDArray[np.int64]  # (n_examples,)
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)  # further numbers per example, such as its difficulty

    def __post_init__(self) -> None:
        n = len(self.labels)
        sizes = {"lengths": len(self.lengths)} | {name: len(x) for name, x in self.extras.items()}
        if self.symbols.dtype not in SYMBOL_TYPES.values():
            raise SbmtError(f"symbols of type {', '.join(SYMBOL_TYPES)}", self.symbols.dtype, "convert them")
        if self.lengths.ndim != 2 or self.lengths.sum() != self.symbols.size:
            raise SbmtError("as many symbols as the lengths add up to", self.symbols.size, "correct the lengths")
        if any(size != n for size in sizes.values()):
            raise SbmtError(f"{n} rows, one per label", sizes, "give every example one of each")

    @classmethod
    def of(
        cls,
        examples: Sequence[tuple[bytes, ...]],
        labels: Sequence[int],
        **extras: ArrayLike,
    ) -> "Examples":
        """Makes them from one tuple of documents per example, whose bytes are the symbols.

        Example:
            >>> Examples.of([(b"ab",), (b"c",)], [0, 1]).symbols.tolist()
            [97, 98, 99]
        """
        n_documents = len(examples[0]) if examples else 1
        lengths = np.array([[len(d) for d in documents] for documents in examples], dtype=np.int64)
        symbols = np.frombuffer(b"".join(d for documents in examples for d in documents), dtype=np.uint8)
        arrays = {name: np.asarray(values) for name, values in extras.items()}
        return cls(symbols, lengths.reshape(len(examples), n_documents), np.asarray(labels, dtype=np.int64), arrays)


@dataclass(frozen=True)
class Shard:
    """A part of the examples."""

    name: str  # unique in its source, and usable in a file name
    make: Callable[[], Examples]  # reads or generates the examples, the same ones at every call
    split: str = ""  # the split to which they belong; empty if ``Source.arrange`` decides that


@dataclass(frozen=True, eq=False)
class Pool:
    """What is known of all examples after every shard has been made, in the order of the shards."""

    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]
    splits: NDArray[Any]  # str (n_examples,), the split that each example's shard names
    extras: dict[str, NDArray[Any]]


Arrangement = dict[str, NDArray[np.int64]]
"""Indices into the pool by split: ``train``, ``dev``, ``test`` and any further ones."""


@dataclass(frozen=True)
class Source:
    """A task's examples and what a model must know about them.

    ``origin`` says whether the examples are ``official``, ``generated`` here, a ``stand-in`` for data that are not
    available, or the user's ``own``. Results on the last two must not be shown beside published ones. ``settings``
    holds everything that decides the content, in a form that JSON can hold: generator and seeds, or files and their
    checksums.
    """

    name: str  # of the folder in which the prepared examples are kept
    task: str  # such as listops or mlm
    origin: Origin
    class_names: tuple[str, ...]  # the meaning of label 0, 1, …
    vocab_size: int  # number of token ids, padding included
    first_id: int  # token id of symbol 0: 1 if id 0 is padding, 0 if symbols are ids
    settings: dict[str, Any]
    shards: tuple[Shard, ...]
    arrange: Callable[[Pool], Arrangement]  # divides the pool into splits
    symbol_type: SymbolType = "uint8"  # of every shard's symbols
    files: dict[str, str] = field(default_factory=dict)  # small files to keep beside the examples, by name


def by_shard(pool: Pool) -> Arrangement:
    """Puts every example into the split of its shard; further splits follow the usual three."""
    names = dict.fromkeys([*SPLITS, *pool.splits.tolist()])
    return {split: np.flatnonzero(pool.splits == split) for split in names}


def shuffled(n: int, seed: int) -> NDArray[np.int64]:
    """A permutation of ``range(n)`` that depends only on n and the seed."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(n)
