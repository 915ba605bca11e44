"""ListOps: what does a nested expression amount to? Drawn by Long Range Arena's rules, or read from its files.

An expression is a digit, or an operator followed by expressions and a closing token, such as
``[MAX 2 9 [MIN 4 7 ] 0 ]``, whose value is 9. Its symbols are token ids:

| id | token |
|---|---|
| 0 | padding |
| 1, 2, 3, 4 | ``[MIN``, ``[MAX``, ``[MED``, ``[SM`` |
| 5 | ``X``, which closes an operator |
| 6 … 15 | the digits 0 … 9 |
| 16 | unknown: never used, so that the embedding is as large as the original one |

Source: Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning" (2018), in the version of Long Range
Arena, Tay et al. (2020). There the order of the ids differs from run to run; here it is fixed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.locate import checked_sha256, columns_of, find_files, missing, read_lines
from sbmt.experiments.data.source import SPLITS, Arrangement, Examples, Origin, Parts, Pool, Source, by_part

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple("0123456789")
TOKENS = (*OPERATORS, "X", *DIGITS)
"""Token of id 1, 2, …"""
CLOSE = 5
FIRST_DIGIT = 6
VOCAB_SIZE = 17
_ID = {token: i for i, token in enumerate(TOKENS, start=1)}
_DO = "correct that expression, or leave it out"


def encode_expression(text: str) -> bytes:
    """The symbols of a written expression, one byte per token, without parentheses, which only repeat its structure.

    Example:
        >>> list(encode_expression("( ( ( [MAX 2 ) 9 ) ] )"))
        [2, 8, 15, 5]
    """
    tokens = text.replace("(", "").replace(")", "").replace("]", "X").split()
    if not tokens:
        raise SbmtError("an expression of at least one token", repr(text), _DO)
    if unknown := [token for token in tokens if token not in _ID]:
        raise SbmtError(f"tokens among {' '.join(TOKENS)}", repr(unknown[0]), _DO)
    return bytes([_ID[token] for token in tokens])


def decode_expression(symbols: Iterable[int]) -> str:
    """An expression as it is written, without parentheses."""
    ids = bytes(symbols)
    _check_ids(ids)
    return " ".join("]" if i == CLOSE else TOKENS[i - 1] for i in ids)


def evaluate_expression(symbols: bytes) -> int:
    """The value of an expression, a digit.

    MIN and MAX are the smallest and the largest value. MED is the median; of an even number of values it is the mean
    of the middle two, rounded down. SM is the last digit of the sum. Raises SbmtError for anything but one whole
    expression.

    Example:
        >>> texts = (f"[{name} 2 9 [MIN 4 7 ] 1 ]" for name in ("MAX", "MED", "SM"))
        >>> [evaluate_expression(encode_expression(text)) for text in texts]
        [9, 3, 6]
    """
    _check_ids(symbols)
    operators: list[int] = []
    values: list[list[int]] = [[]]  # those outside of all operators, then those of each open operator so far
    for place, symbol in enumerate(symbols):
        if symbol >= FIRST_DIGIT:
            values[-1].append(symbol - FIRST_DIGIT)
        elif symbol < CLOSE:
            operators.append(symbol)
            values.append([])
        elif operators and values[-1]:
            value = _OPERATIONS[operators.pop()](values.pop())
            values[-1].append(value)
        else:
            raise SbmtError("one whole expression", f"an X that closes no values after {place} tokens", _DO)
    if operators or len(values[0]) != 1:
        got = f"{len(operators)} operators left open, and {len(values[0])} expressions in a row"
        raise SbmtError("one whole expression", got, _DO)
    return values[0][0]


def _median(values: list[int]) -> int:
    ranked, n = sorted(values), len(values)
    return (ranked[(n - 1) // 2] + ranked[n // 2]) // 2


_OPERATIONS: dict[int, Callable[[list[int]], int]] = {1: min, 2: max, 3: _median, 4: lambda values: sum(values) % 10}


def _check_ids(symbols: bytes) -> None:
    if wrong := symbols.translate(None, bytes(_ID.values())):
        raise SbmtError(f"token ids in [1, {len(TOKENS)}]", wrong[0], "remove padding and unknown tokens")


@dataclass(frozen=True)
class TreeLaw:
    """How expressions are drawn, and which of them are kept.

    A node is a digit, uniform on 0 … 9, with probability ``digit_share``, and always at depth ``max_depth``;
    the root has depth 1. Any other node is an operator, uniform on MIN, MAX, MED and SM, with 2 … ``max_args``
    children, again uniform. All draws are independent. A tree is kept if its length, the number of its tokens, lies
    strictly between the bounds.

    Source: the defaults are those of Long Range Arena's data.
    """

    max_depth: int = 10  # largest number of levels of a tree
    max_args: int = 10  # largest number of children of an operator
    digit_share: float = 0.75  # probability of a digit where an operator is allowed
    min_length: int = 500  # trees that are kept are longer than this
    max_length: int = 2000  # and shorter than this

    def __post_init__(self) -> None:
        check_sizes(max_depth=self.max_depth, max_args=self.max_args)
        if self.max_args < 2:
            raise SbmtError("max_args ≥ 2", self.max_args, "allow an operator at least two values")
        if not 0 <= self.digit_share <= 1:
            raise SbmtError("digit_share in [0, 1]", self.digit_share, "give a probability")
        if not 0 <= self.min_length < self.max_length - 1:
            got = f"{self.min_length} and {self.max_length}"
            raise SbmtError("0 ≤ min_length < max_length - 1, both exclusive", got, "leave a length in between")


def generate_expressions(n_trees: int, generator: np.random.Generator, law: TreeLaw | None = None) -> list[bytes]:
    """Draws trees, many at once and level by level, and returns those that are kept, in the order of the draws.

    Only ``random()`` of the generator is used: two numbers per node, first for the nodes of all trees at one depth,
    then for those at the next. A tree is given up as soon as it is known to be too long, which does not change the
    law: it would not have been kept, and trees are independent.

    Example:
        >>> law = TreeLaw(max_depth=3, max_args=3, min_length=5, max_length=9)
        >>> kept = generate_expressions(20, np.random.Generator(np.random.PCG64(0)), law)
        >>> [decode_expression(x) for x in kept]
        ['[MAX [SM 4 6 ] 1 0 ]', '[MAX 1 [SM 9 9 4 ] ]']
    """
    check_sizes(n_trees=n_trees)
    law = law or TreeLaw()
    levels: list[tuple[list[int], list[int]]] = []  # of each depth: symbols of all nodes, and places of their children
    lengths = np.zeros(n_trees, dtype=np.int64)  # of a tree that was given up: max_length
    tree = np.arange(n_trees)  # to which each node of a depth belongs, children of one parent side by side
    for depth in range(1, law.max_depth + 1):
        kind, choice = generator.random((2, len(tree)))
        is_operator = (kind >= law.digit_share) & (depth < law.max_depth)
        # One number decides both the operator and its number of children: all combinations are equally likely.
        n_more, operator = np.divmod((choice * (law.max_args - 1) * len(OPERATORS)).astype(np.int64), len(OPERATORS))
        digit = FIRST_DIGIT + (choice * 10).astype(np.int64)
        n_children = np.where(is_operator, 2 + n_more, 0)
        lengths += np.bincount(tree, 1 + is_operator, n_trees).astype(np.int64)
        shortest = lengths + np.bincount(tree, n_children, n_trees).astype(np.int64)  # if all children were digits
        lengths[shortest >= law.max_length] = law.max_length
        n_drawn = np.where(lengths[tree] < law.max_length, n_children, 0)
        levels.append((np.where(is_operator, 1 + operator, digit).tolist(), [0, *n_drawn.cumsum().tolist()]))
        tree = np.repeat(tree, n_drawn)
        if not len(tree):
            break

    def written(depth: int, node: int) -> bytes:
        """A node: a digit; or an operator, its children from left to right, and the closing token."""
        symbols, places = levels[depth]
        first, end = places[node], places[node + 1]
        if first == end:
            return bytes([symbols[node]])
        return b"".join(
            [bytes([symbols[node]]), *(written(depth + 1, child) for child in range(first, end)), bytes([CLOSE])]
        )

    is_kept = (law.min_length < lengths) & (lengths < law.max_length)
    return [written(0, root) for root in np.flatnonzero(is_kept).tolist()]


SHARD_SIZE = 1000  # examples drawn from one stream, before repeated ones are dropped
_TREES_PER_ROUND = 4096
_MOST_ROUNDS = 256  # enough where one tree in a thousand is kept; Long Range Arena's law keeps one in twelve


def listops_source(
    *,
    n_train: int = 96_000,
    n_dev: int = 2_000,
    n_test: int = 2_000,
    min_length: int = 500,
    max_length: int = 2000,
    max_depth: int = 10,
    max_args: int = 10,
    seed: int = 0,
    name: str = "listops",
) -> Source:
    """Examples generated by Long Range Arena's rules, all different; see :class:`TreeLaw`.

    Part i depends only on the law, the seed and i. Repetitions are dropped; what is left of all parts is divided in
    their order: first train, then dev, then test. (Long Range Arena splits in the order of a Python set, which differs
    from run to run.) ``extras["digest"]`` is a hash by which repetitions are recognised.
    """
    check_sizes(n_train=n_train, n_dev=n_dev, n_test=n_test)
    check_seed(seed)
    law = TreeLaw(max_depth=max_depth, max_args=max_args, min_length=min_length, max_length=max_length)
    sizes = dict(zip(SPLITS, (n_train, n_dev, n_test), strict=True))
    n_parts = -(-sum(sizes.values()) * 102 // (100 * SHARD_SIZE))  # two in a hundred may be repetitions
    settings = {"sizes": sizes, "law": asdict(law), "seed": seed, "shard_size": SHARD_SIZE}
    settings["draws"] = "PCG64(SeedSequence([seed, shard]))"

    def parts() -> Iterator[tuple[str, Examples]]:
        return (("", _generate(np.random.SeedSequence([seed, part]), law)) for part in range(n_parts))

    return _source(name, "generated", settings, parts, partial(_first_of_each, sizes))


def _source(
    name: str, origin: Origin, settings: dict[str, Any], parts: Parts, arrange: Callable[[Pool], Arrangement]
) -> Source:
    settings = settings | {"tokens": list(TOKENS)}
    return Source(name, "listops", origin, DIGITS, VOCAB_SIZE, 0, settings, parts, arrange)


def _generate(seed: np.random.SeedSequence, law: TreeLaw) -> Examples:
    """The first :data:`SHARD_SIZE` trees that are kept of a stream, each expression once."""
    generator = np.random.Generator(np.random.PCG64(seed))
    kept: list[bytes] = []
    for _ in range(_MOST_ROUNDS):
        kept += generate_expressions(_TREES_PER_ROUND, generator, law)
        if len(kept) >= SHARD_SIZE:
            break
    else:
        expected = f"a law that keeps {SHARD_SIZE} of {_MOST_ROUNDS * _TREES_PER_ROUND} trees"
        raise SbmtError(expected, f"{len(kept)} with {law}", "allow more lengths")
    expressions = list(dict.fromkeys(kept[:SHARD_SIZE]))
    return _examples(expressions, [evaluate_expression(x) for x in expressions])


def _examples(expressions: list[bytes], labels: list[int]) -> Examples:
    """Examples with the extra that :func:`listops_source` describes."""
    digests = [hashlib.blake2b(x, digest_size=8).digest() for x in expressions]
    return Examples.of(
        [(x,) for x in expressions],
        labels,
        digest=np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64),
    )


def _first_of_each(sizes: dict[str, int], pool: Pool) -> Arrangement:
    """Train, dev and test from the first occurrence of each expression, in the order of the pool."""
    _, first = np.unique(pool.extras["digest"], return_index=True)
    first.sort()
    n = sum(sizes.values())
    if len(first) < n:
        do = "ask for fewer examples, or allow longer expressions"
        raise SbmtError(f"{n} different expressions", len(first), do)
    ends = np.cumsum([sizes[split] for split in SPLITS])
    return dict(zip(SPLITS, np.split(first[:n].astype(np.int64), ends[:-1]), strict=True))


_FILES = {"train": "basic_train.tsv", "dev": "basic_val.tsv", "test": "basic_test.tsv"}
_SUBFOLDERS = ("listops-1000", "listops", "lra_release/listops-1000", "lra_release/lra_release/listops-1000")
_GET = "unpack https://storage.googleapis.com/long-range-arena/lra_release.gz, or generate the examples instead"
_FETCH = "fetch the file again"


def listops_files(folder: Path | str) -> Source:
    """Long Range Arena's own examples: ``basic_{train,val,test}.tsv`` in a folder, or in the unpacked archive."""
    folder = Path(folder)
    found = find_files(folder, _FILES.values(), _SUBFOLDERS)
    if len(found) < len(_FILES):
        raise missing(_FILES.values(), folder, found, _GET)
    sums = {name: checked_sha256(path) for name, path in found.items()}

    def parts() -> Iterator[tuple[str, Examples]]:
        return ((split, _read(found[file])) for split, file in _FILES.items())

    return _source("listops", "official", {"sha256": sums}, parts, by_part)


def _read(path: Path) -> Examples:
    """All examples of a file."""
    expressions, labels = [], []
    for number, line in enumerate(read_lines(path), start=1):
        where = f"line {number} of {path}"
        columns = [column.decode(errors="replace") for column in columns_of(line)]
        if not line.endswith(b"\n"):
            raise SbmtError(f"a line feed after {where}", repr(line[-20:]), f"{_FETCH}, it is cut off")
        if number == 1 and columns == ["Source", "Target"]:
            continue
        if number == 1 or len(columns) != 2 or columns[1] not in DIGITS:
            expected = f"Source, Target in line 1 and then an expression and a label 0 … 9, in {where}"
            raise SbmtError(expected, repr(columns[-1][:40]), "give Long Range Arena's file")
        try:
            expression = encode_expression(columns[0])
            value = evaluate_expression(expression)
        except SbmtError as error:
            expected, got, do = error.args
            raise SbmtError(f"{expected} in {where}", got, do) from None
        if int(columns[1]) != value:
            raise SbmtError(f"the label {value}, the value of the expression, in {where}", columns[1], _FETCH)
        expressions.append(expression)
        labels.append(value)
    if not labels:
        raise SbmtError(f"a header and rows in {path}", "none", _FETCH)
    return _examples(expressions, labels)
