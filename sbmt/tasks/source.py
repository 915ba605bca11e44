"""Where a task's examples come from: shards that can be made one by one, in any order, always the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError

SPLITS = ("train", "dev", "test")
Origin = Literal["official", "generated", "stand-in"]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled documents, end to end.

    Attributes:
        symbols: uint8, all documents one after the other.
        lengths: int64 ``(n_examples, n_documents)``, symbols per document.
        labels: int64 ``(n_examples,)``.
        extras: Further numbers per example by name, such as how difficult it is.

    Raises:
        SbmtError: If sizes do not fit each other.
    """

    symbols: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.labels)
        sizes = {"lengths": len(self.lengths)} | {name: len(x) for name, x in self.extras.items()}
        if self.symbols.dtype != np.uint8 or self.lengths.ndim != 2 or self.lengths.sum() != self.symbols.size:
            raise SbmtError("uint8 symbols, as many as lengths (examples, documents) say", self.symbols.size, "mend it")
        if any(size != n for size in sizes.values()):
            raise SbmtError(f"{n} rows, one per label", sizes, "give every example each of them")

    @classmethod
    def of(
        cls,
        examples: Sequence[tuple[bytes, ...]],
        labels: Sequence[int],
        **extras: Sequence[float],
    ) -> "Examples":
        """From one tuple of documents per example.

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
    """A part of the examples.

    Attributes:
        name: Unique in its source, fit for a file name.
        make: Reads or generates it. The same every time it is called.
        split: Which split it belongs to, where the source decides; empty where :attr:`Source.arrange` does.
    """

    name: str
    make: Callable[[], Examples]
    split: str = ""


@dataclass(frozen=True, eq=False)
class Pool:
    """What is known of all examples once every shard is made, in the order of the shards.

    Attributes:
        labels: int64 ``(n_examples,)``.
        lengths: int64 ``(n_examples, n_documents)``.
        splits: str ``(n_examples,)``, what the shards say.
        extras: As in :class:`Examples`.
    """

    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]
    splits: NDArray[Any]
    extras: dict[str, NDArray[Any]]


Arrangement = dict[str, NDArray[np.int64]]
"""Indices into the pool for ``train``, ``dev`` and ``test``."""


@dataclass(frozen=True)
class Source:
    """A task's examples and what a model must know about them.

    Attributes:
        name: Of the folder that the prepared examples are kept in.
        task: ``listops``, ``text``, ``retrieval``, ``image`` or ``pathfinder``.
        origin: ``official`` files, ``generated`` here, or ``stand-in`` for data that cannot be had: results on the
            last never stand beside published ones.
        class_names: What label 0, 1, … mean.
        vocab_size: Number of token ids, padding included.
        first_id: Token id of symbol 0: 1 where id 0 is padding, 0 where symbols are ids.
        settings: Everything that decides the content, as JSON holds it: generator and seeds, or files and checksums.
        shards: The parts.
        arrange: Divides the pool into splits.
    """

    name: str
    task: str
    origin: Origin
    class_names: tuple[str, ...]
    vocab_size: int
    first_id: int
    settings: dict[str, Any]
    shards: tuple[Shard, ...]
    arrange: Callable[[Pool], Arrangement]


def by_shard(pool: Pool) -> Arrangement:
    """Every example goes where its shard says."""
    return {split: np.flatnonzero(pool.splits == split) for split in SPLITS}


def shuffled(n: int, seed: int) -> NDArray[np.int64]:
    """A permutation of ``range(n)`` that depends on n and the seed alone."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(n)
