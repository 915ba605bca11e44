"""ListOps: find the value of a nested expression. For example, ``[MAX 2 9 [MIN 4 7 ] 0 ]`` has the value 9.

Source: Nangia and Bowman, "ListOps: a diagnostic dataset for latent tree learning" (2018). Expressions are drawn by
the rules of Long Range Arena, Tay et al. (2020), and :data:`TOKENS` fixes the token ids.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from sbmt.errors import SbmtError, check_seed, check_sizes
from sbmt.experiments.data.source import SPLITS, Arrangement, Examples, Pool, Source

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
DIGITS = tuple("0123456789")
TOKENS = (*OPERATORS, "X", *DIGITS)  # with ids 1, 2, …
CLOSE, FIRST_DIGIT = 5, 6
VOCAB_SIZE = 17  # one more than needed, to match the size of the original embedding
SHARD_SIZE = 1000  # number of examples drawn from one random stream, before duplicates are dropped
_TREES_PER_ROUND = 4096
_MOST_ROUNDS = 256  # enough if one tree in a thousand is kept; Long Range Arena's rules keep one in twelve


def decode_expression(symbols: Iterable[int]) -> str:
    """Returns the text of an expression."""
    return " ".join("]" if i == CLOSE else TOKENS[i - 1] for i in symbols)


_OPERATIONS: tuple[Callable[[list[int]], int], ...] = (min, max, lambda v: int(median(v)), lambda v: sum(v) % 10)


def evaluate_expression(symbols: bytes) -> int:
    """Evaluates an expression to a digit. Medians are rounded down, and ``SM`` is the last digit of the sum."""
    operators: list[int] = []
    values: list[list[int]] = [[]]  # values outside all operators, then the values of each open operator
    try:
        for symbol in symbols:
            if FIRST_DIGIT <= symbol <= len(TOKENS):
                values[-1].append(symbol - FIRST_DIGIT)
            elif 0 < symbol < CLOSE:
                operators.append(symbol)
                values.append([])
            elif symbol == CLOSE:
                value = _OPERATIONS[operators.pop() - 1](values.pop())
                values[-1].append(value)
            else:
                raise ValueError(symbol)
        ((whole,),) = values
    except (IndexError, ValueError) as error:
        do = "remove any padding, and close every operator"
        raise SbmtError("one complete expression", list(symbols), do) from error
    return whole


@dataclass(frozen=True)
class TreeLaw:
    """Rules for drawing and filtering random expressions; the defaults are those of Long Range Arena."""

    max_depth: int = 10  # maximum number of levels in a tree
    max_args: int = 10  # maximum number of children per operator
    digit_share: float = 0.75  # probability of a digit where an operator is allowed
    min_length: int = 500  # exclusive lower bound on the length of kept trees
    max_length: int = 2000  # exclusive upper bound on the length of kept trees

    def __post_init__(self) -> None:
        check_sizes(max_depth=self.max_depth)
        if self.max_args < 2:
            raise SbmtError("max_args ≥ 2", self.max_args, "allow at least two values per operator")
        if not 0 <= self.digit_share <= 1:
            raise SbmtError("digit_share in [0, 1]", self.digit_share, "give a probability")
        if not 0 <= self.min_length < self.max_length - 1:
            got = f"{self.min_length} and {self.max_length}"
            raise SbmtError("0 ≤ min_length < max_length - 1, both exclusive", got, "allow at least one length")


def generate_expressions(n_trees: int, generator: np.random.Generator, law: TreeLaw | None = None) -> list[bytes]:
    """Draws trees level by level, and returns those of valid length. Trees that will be too long are abandoned."""
    check_sizes(n_trees=n_trees)
    law = law or TreeLaw()
    levels: list[tuple[list[int], list[int]]] = []  # for each depth: node symbols and positions of children
    lengths = np.zeros(n_trees, dtype=np.int64)  # set to max_length for abandoned trees
    tree = np.arange(n_trees)  # tree of each node at the current depth; siblings are adjacent
    for depth in range(1, law.max_depth + 1):
        kind, choice = generator.random((2, len(tree)))
        is_operator = (kind >= law.digit_share) & (depth < law.max_depth)
        # One draw determines the operator and its number of children, so that all combinations are equally likely.
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
        """Returns the symbols of a subtree: a digit, or an operator followed by its children and a closing token."""
        symbols, places = levels[depth]
        symbol, children = bytes([symbols[node]]), range(places[node], places[node + 1])
        return symbol + b"".join(written(depth + 1, child) for child in children) + bytes([CLOSE] * bool(children))

    is_kept = (law.min_length < lengths) & (lengths < law.max_length)
    return [written(0, root) for root in np.flatnonzero(is_kept).tolist()]


def listops_source(
    *, n_train: int = 96_000, n_dev: int = 2_000, n_test: int = 2_000, seed: int = 0, name: str = "listops", **law: int
) -> Source:
    """Returns a source of distinct expressions. Further keyword arguments are passed to :class:`TreeLaw`."""
    check_sizes(n_train=n_train, n_dev=n_dev, n_test=n_test)
    check_seed(seed)
    trees = TreeLaw(**law)
    sizes = dict(zip(SPLITS, (n_train, n_dev, n_test), strict=True))
    n = sum(sizes.values())
    n_parts = -(-n * 102 // (100 * SHARD_SIZE))  # allows for two duplicates in a hundred
    settings = {"sizes": sizes, "law": asdict(trees), "seed": seed, "shard_size": SHARD_SIZE}
    settings |= {"draws": "PCG64(SeedSequence([seed, shard]))", "tokens": list(TOKENS)}

    def parts() -> Iterator[tuple[str, Examples]]:
        return (("", _generate(np.random.SeedSequence([seed, part]), trees)) for part in range(n_parts))

    def arrange(pool: Pool) -> Arrangement:
        """Divides the first occurrences of expressions into train, dev and test, in the order of the pool."""
        first = np.sort(np.unique(pool.extras["digest"], return_index=True)[1]).astype(np.int64)
        if len(first) < n:
            raise SbmtError(f"{n} different expressions", len(first), "request fewer, or allow longer ones")
        return dict(zip(SPLITS, np.split(first[:n], [n_train, n_train + n_dev]), strict=True))

    return Source(name, "listops", "generated", DIGITS, VOCAB_SIZE, 0, settings, parts, arrange)


def _generate(seed: np.random.SeedSequence, law: TreeLaw) -> Examples:
    """Returns the first :data:`SHARD_SIZE` trees of valid length in a random stream, without duplicates."""
    generator = np.random.Generator(np.random.PCG64(seed))
    kept: list[bytes] = []
    for _ in range(_MOST_ROUNDS):
        kept += generate_expressions(_TREES_PER_ROUND, generator, law)
        if len(kept) >= SHARD_SIZE:
            break
    else:
        expected = f"rules that keep {SHARD_SIZE} of {_MOST_ROUNDS * _TREES_PER_ROUND} trees"
        raise SbmtError(expected, f"{len(kept)} with {law}", "widen the range of lengths")
    expressions = list(dict.fromkeys(kept[:SHARD_SIZE]))
    digests = b"".join(hashlib.blake2b(x, digest_size=8).digest() for x in expressions)
    labels = [evaluate_expression(x) for x in expressions]
    return Examples.of([(x,) for x in expressions], labels, digest=np.frombuffer(digests, "<u8").astype(np.uint64))
