"""Sources of examples. A source produces the examples of a task as a reproducible sequence of parts."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sbmt.errors import SbmtError, check_choice, check_sizes, describe, is_integer

TASKS = ("listops", "text", "retrieval", "image", "pathfinder", "corpus", "sst2", "qqp", "mnli", "qnli")
SPLITS = ("train", "dev", "test")  # every task has these splits, and some have more
MOST_LABELS = 1 << 31

Origin = Literal["official", "generated", "stand-in", "own"]
SymbolType = Literal["uint8", "uint16", "uint32"]
Symbols = NDArray[np.unsignedinteger[Any]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def check_numbers(numbers: Any, n: int, what: str = "example numbers") -> Ints:
    """Returns the numbers as an array; raises SbmtError unless all of them are integers in [0, n)."""
    try:
        array = np.asarray(numbers)
    except ValueError as error:  # rows of different lengths
        raise SbmtError(f"a flat list of integers for {what}", error, "give integers") from error
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise SbmtError(f"a flat list of integers for {what}", describe(numbers), "give integers")
    if array.size and not 0 <= array.min() <= array.max() < n:
        raise SbmtError(f"{what} in [0, {n})", f"numbers from {array.min()} to {array.max()}", "count from 0")
    return array.astype(np.int64)


def check_names(kind: str, names: Iterable[str]) -> None:
    """Raises SbmtError unless all names can safely be used in file names and tables."""
    for name in names:
        if not (isinstance(name, str) and name.isascii() and f"x{name}".replace("-", "_").isidentifier() and name):
            raise SbmtError(f"{kind} to have names made of letters, digits, _ and -", repr(name), "choose another name")


def check_texts(kind: str, texts: Iterable[str]) -> None:
    """Raises SbmtError if a text has lone surrogates, which cannot be written to files or figures."""
    for text in texts:
        if not isinstance(text, str) or any("\ud800" <= c <= "\udfff" for c in text):
            raise SbmtError(f"{kind} that UTF-8 can encode", repr(text)[:80], "remove lone surrogates")


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples, each of one or more documents, stored as flat arrays."""

    symbols: Symbols  # concatenation of all documents, as uint8, uint16 or uint32
    lengths: Ints  # (n_examples, n_documents), the number of symbols of each document
    labels: Ints  # (n_examples,)
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)  # other numbers per example, such as its difficulty

    def __post_init__(self) -> None:
        n = len(check_numbers(self.labels, MOST_LABELS, "labels"))
        for name, array in {"symbols": self.symbols, "lengths": self.lengths, **self.extras}.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
                raise SbmtError(f"an array of numbers for {name}", type(array).__name__, "make one with numpy.array")
        if self.symbols.dtype not in get_args(SymbolType) or self.symbols.ndim != 1:
            do = f"convert them to {', '.join(get_args(SymbolType))}"
            raise SbmtError("a flat array of 8-, 16- or 32-bit symbols", describe(self.symbols), do)
        check_numbers(np.ravel(self.lengths), self.symbols.size + 1, "lengths")
        if self.lengths.ndim != 2 or self.lengths.sum() != self.symbols.size:
            raise SbmtError("as many symbols as the lengths add up to", self.symbols.size, "correct the lengths")
        check_names("extras", self.extras)
        if any(x.shape[:1] != (n,) for x in (self.lengths, *self.extras.values())):
            raise SbmtError(f"{n} rows of lengths and extras", "a different number", "give one row per example")

    @classmethod
    def of(cls, examples: Sequence[tuple[bytes, ...]], labels: Sequence[int], **extras: ArrayLike) -> "Examples":
        """Builds examples from one tuple of documents per example. The bytes of a document are its symbols."""
        n_documents = len(examples[0]) if examples else 1
        if any(len(documents) != n_documents for documents in examples):
            raise SbmtError("the same number of documents in every example", "different numbers", "add or remove some")
        lengths = np.array([len(d) for documents in examples for d in documents], np.int64)
        symbols = np.frombuffer(b"".join(d for documents in examples for d in documents), np.uint8)
        arrays = {name: np.asarray(values) for name, values in extras.items()}
        return cls(symbols, lengths.reshape(-1, n_documents), check_numbers(labels, MOST_LABELS, "labels"), arrays)


# Produces all parts in order. A part is a pair of its split's name (empty if assigned later) and its examples.
Parts = Callable[[], Iterable[tuple[str, Examples]]]
Arrangement = dict[str, Ints]  # indices into the pool for train, dev, test and any additional splits


@dataclass(frozen=True, eq=False)
class Pool:
    """Labels, lengths and extras of all examples in the order of the parts, from which splits are assigned."""

    labels: Ints
    lengths: Ints
    splits: NDArray[Any]  # str (n_examples,), the split named by each example's part
    extras: dict[str, NDArray[Any]]


def by_part(pool: Pool) -> Arrangement:
    """Assigns every example to the split of its part. Any additional splits follow train, dev and test."""
    return {split: np.flatnonzero(pool.splits == split) for split in dict.fromkeys([*SPLITS, *pool.splits.tolist()])}


def check_arrangement(splits: Arrangement, n: int) -> None:
    """Raises SbmtError unless the splits are disjoint, non-empty, and contain only example numbers in [0, n)."""
    if not isinstance(splits, dict):
        raise SbmtError("a dict of splits", describe(splits), "change the source's arrange function to return one")
    if absent := [split for split in SPLITS if split not in splits]:
        raise SbmtError(f"the splits {', '.join(SPLITS)}", f"none named {', '.join(absent)}", "add them to arrange")
    check_names("splits", splits)
    for split, numbers in splits.items():
        if not len(check_numbers(numbers, n, f"examples of {split}")):
            raise SbmtError(f"examples in {split}", "none", "provide more examples")
    counts = np.bincount(np.concatenate(list(splits.values())), minlength=n)
    if counts.max() > 1:
        do = "use different data for training and testing"
        raise SbmtError("each example in one split only", f"example {counts.argmax()} in {counts.max()} places", do)


@dataclass(frozen=True)
class Source:
    """The examples of a task, and what models need to know about them. The ``settings`` determine all examples.

    If the ``origin`` is ``stand-in`` or ``own``, results must not be compared with published ones.
    """

    name: str  # name of the folder that contains the prepared examples
    task: str  # name of the task, such as listops or mlm
    origin: Origin
    class_names: tuple[str, ...]  # meanings of labels 0, 1, …
    vocab_size: int  # number of token ids, including padding
    first_id: int  # token id of symbol 0: 1 if id 0 is padding, 0 if symbols are token ids
    settings: dict[str, Any]  # must be storable as JSON
    parts: Parts
    arrange: Callable[[Pool], Arrangement] = by_part  # divides the pool into splits
    symbol_type: SymbolType = "uint8"  # data type of the symbols
    files: dict[str, str] = field(default_factory=dict)  # contents of small files stored with the examples, by name
    notes: tuple[str, ...] = ()  # remarks about the examples, shown by ``sbmt data list``

    def __post_init__(self) -> None:
        check_names("examples", [self.name, self.task])
        check_choice("origin", self.origin, Origin)
        if not all(map(callable, (self.parts, self.arrange))) or not isinstance(self.files, dict):
            raise SbmtError("parts and arrange as functions, and files as a dict", "other types", "see Source")
        for name, text in self.files.items():
            check_names("files", str(name).split("."))
            if not isinstance(text, str) or name.lower().endswith((".npy", ".raw")) or name.lower() == "info.json":
                raise SbmtError("text files with names that are not reserved", repr(name), "choose another name")
        for texts in (self.class_names, self.notes):
            if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
                raise SbmtError("class_names and notes to be tuples of strings", describe(texts), "convert them")
        check_texts("class_names, notes and files", [*self.class_names, *self.notes, *self.files.values()])
        try:
            json.dumps(self.settings, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SbmtError("settings that can be stored as JSON", error, "use strings and numbers") from error
        check_sizes(vocab_size=self.vocab_size, n_classes=len(self.class_names))
        if not is_integer(self.first_id) or not 0 <= self.first_id < self.vocab_size:
            raise SbmtError(f"first_id in [0, {self.vocab_size})", self.first_id, "use 0 or 1")


def tenths(pool: Pool, seed: int) -> Arrangement:
    """Shuffles all examples, and assigns eight tenths to train, one tenth to dev and the remainder to test."""
    order, n = shuffled(len(pool.labels), seed), len(pool.labels)
    return dict(zip(SPLITS, np.split(order, [n * 8 // 10, n * 8 // 10 + n // 10]), strict=True))


def shuffled(n: int, seed: int) -> Ints:
    """Returns a permutation of ``range(n)`` that depends only on n and the seed."""
    return np.random.Generator(np.random.PCG64(seed)).permutation(n)
