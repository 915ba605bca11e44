"""Random ListOps expressions: many trees at once, drawn level by level."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.listops.expressions import CLOSE, FIRST_DIGIT, OPERATORS


@dataclass(frozen=True)
class TreeLaw:
    """How expressions are drawn, and which of them are kept.

    A node is a digit, uniform on 0 … 9, with probability ``digit_share``, and always at depth ``max_depth``;
    the root has depth 1. Any other node is an operator, uniform on MIN, MAX, MED and SM, with 2 … ``max_args``
    children, again uniform. All draws are independent. A tree is kept if its length, the number of its tokens, lies
    strictly between the bounds.

    Raises:
        SbmtError: If a number is out of range.

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


@dataclass(frozen=True, eq=False)
class _Level:
    """The nodes of one depth, children of one parent side by side."""

    tree: NDArray[np.int64]  # the tree to which each node belongs
    parent: NDArray[np.int64]  # the place of each node's parent in the level above
    n_children: NDArray[np.int64]  # 0 for a digit
    symbol: NDArray[np.uint8]  # the node's token id


def generate_expressions(n_trees: int, generator: np.random.Generator, law: TreeLaw | None = None) -> list[bytes]:
    """Draws trees and returns those that are kept, in the order of the draws.

    Args:
        n_trees: Number of trees to draw, kept or not.
        generator: Source of the draws. Only its ``random()`` is used: two numbers per node, first for the nodes of all
            trees at one depth, then for those at the next, so that the result depends on ``n_trees`` too.
        law: None for Long Range Arena's law.

    Returns:
        Symbols of at most ``n_trees`` independent expressions; some may be equal.

    Raises:
        SbmtError: If ``n_trees`` is not positive.

    Cost: a few array operations per depth, linear in the number of nodes. A tree is given up as soon as it is known to
    be too long, which does not change the law: it would not have been kept, and trees are independent.

    Example:
        >>> from sbmt.experiments.data.listops.expressions import decode_expression
        >>> law = TreeLaw(max_depth=3, max_args=3, min_length=5, max_length=9)
        >>> kept = generate_expressions(20, np.random.Generator(np.random.PCG64(0)), law)
        >>> [decode_expression(x) for x in kept]
        ['[MAX [SM 4 6 ] 1 0 ]', '[MAX 1 [SM 9 9 4 ] ]']
    """
    check_sizes(n_trees=n_trees)
    law = law or TreeLaw()
    levels, lengths = _draw(n_trees, generator, law)
    is_kept = (law.min_length < lengths) & (lengths < law.max_length)
    symbols = _lay_out(_subset(levels, is_kept))
    return [piece.tobytes() for piece in np.split(symbols, lengths[is_kept].cumsum()[:-1])] if is_kept.any() else []


def _draw(n_trees: int, generator: np.random.Generator, law: TreeLaw) -> tuple[list[_Level], NDArray[np.int64]]:
    """Levels from the roots down, and lengths ``(n_trees,)``; a tree that was given up has one that is too long."""
    levels = []
    lengths = np.zeros(n_trees, dtype=np.int64)
    tree = parent = np.arange(n_trees)
    for depth in range(1, law.max_depth + 1):
        kind, choice = generator.random((2, len(tree)))
        is_operator = (kind >= law.digit_share) & (depth < law.max_depth)
        # One number decides both the operator and its number of children: all combinations are equally likely.
        n_more, operator = np.divmod((choice * (law.max_args - 1) * len(OPERATORS)).astype(np.int64), len(OPERATORS))
        digit = FIRST_DIGIT + (choice * 10).astype(np.int64)
        symbol = np.where(is_operator, 1 + operator, digit).astype(np.uint8)
        n_children = np.where(is_operator, 2 + n_more, 0)
        lengths += np.bincount(tree, 1 + is_operator, n_trees).astype(np.int64)
        levels.append(_Level(tree, parent, n_children, symbol))
        shortest = lengths + np.bincount(tree, n_children, n_trees).astype(np.int64)  # if all children were digits
        lengths[shortest >= law.max_length] = law.max_length
        parent = np.repeat(np.arange(len(tree)), np.where(lengths[tree] < law.max_length, n_children, 0))
        tree = tree[parent]
        if not len(tree):
            break
    return levels, lengths


def _subset(levels: list[_Level], is_kept: NDArray[np.bool_]) -> list[_Level]:
    """The levels, with only the nodes of the trees that are kept."""
    kept = []
    place = np.arange(len(is_kept))  # of each node of the level above, after the others are removed
    for level in levels:
        mine = is_kept[level.tree]
        parent = place[level.parent[mine]]
        place = mine.cumsum() - 1
        kept.append(_Level(level.tree[mine], parent, level.n_children[mine], level.symbol[mine]))
    return kept


def _lay_out(levels: list[_Level]) -> NDArray[np.uint8]:
    """Symbols of all trees, end to end: an operator, its children from left to right, the closing token."""
    sizes: list[NDArray[np.int64]] = []  # tokens of each node's subtree, deepest level first
    for level, below in zip(reversed(levels), [None, *reversed(levels[1:])], strict=True):
        size = 1 + (level.n_children > 0).astype(np.int64)
        if below is not None:
            size += np.bincount(below.parent, sizes[-1], len(size)).astype(np.int64)
        sizes.append(size)
    symbols = np.empty(sizes[-1].sum(), dtype=np.uint8)
    start = np.zeros(0, dtype=np.int64)
    for depth, (level, size) in enumerate(zip(levels, reversed(sizes), strict=True)):
        before = size.cumsum() - size  # tokens of the nodes further left in this level
        if depth:
            above = levels[depth - 1].n_children
            first = (above.cumsum() - above)[level.parent]  # each node's leftmost sibling
            start = start[level.parent] + 1 + before - before[first]
        else:
            start = before
        symbols[start] = level.symbol
        symbols[(start + size - 1)[level.n_children > 0]] = CLOSE
    return symbols
