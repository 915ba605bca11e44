"""Condition 2: searches for Hamiltonian paths of patterns, which are found, excluded by a proof, or left undecided.

Proofs are tried from cheap to expensive: first the order of the strong components, then degrees and matchings together
with relays, and finally an exact search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sbmt.errors import SbmtError, is_integer
from theory.checks import as_list
from theory.conditions import as_csr
from theory.path_cover import TIME_LIMIT, Undecided, as_arcs, cover_with_few_paths

Evidence = Literal["theorem", "exhaustive", "instance", "simulated", "heuristic"]
"""The kind of evidence: a proved theorem that applies to the case, a search through all cases, a check of the case
entry by entry, the share of random draws, or a heuristic, which proves nothing."""


@dataclass(frozen=True)
class PathSearch:
    """The result of a search for a Hamiltonian path, with the reason in one sentence."""

    order: list[int] | None  # the tokens in the order of the path; None if there is none
    evidence: Evidence  # "instance" if a path was found; "theorem" or "exhaustive" if none exists
    reason: str


def check_path(pattern: Any, order: Sequence[int] | np.ndarray) -> bool:
    """Returns whether ``order`` visits every token once along arcs, so ``A[order[t + 1], order[t]]`` holds for all t.

    The check uses only the entries and no solver.

    Example:
        >>> mask = np.tri(3, dtype=bool)
        >>> check_path(mask, [0, 1, 2]), check_path(mask, [2, 1, 0])
        (True, False)
    """
    tokens = as_list(order, "a list of tokens", "give the order of a path")
    if not all(map(is_integer, tokens)):
        raise SbmtError("tokens to be integers", tokens[:5], "count them from 0")
    matrix = as_csr(pattern)
    if sorted(tokens) != list(range(matrix.shape[0])):
        return False
    rows = matrix.indptr
    return all(source in matrix.indices[rows[target] : rows[target + 1]] for source, target in pairwise(tokens))


def find_hamiltonian_path(pattern: Any, time_limit: float | int = TIME_LIMIT) -> list[int] | None:
    """Finds a Hamiltonian path in a pattern's graph, as a list of tokens; None if there is provably no path.

    Raises:
        SbmtError: If the pattern or the time limit, in seconds of exact search, is invalid.
        Undecided: If the time limit is reached.

    Paper: condition 2 of the theorem on universal approximation.

    Example:
        >>> find_hamiltonian_path(np.tri(4, dtype=bool))
        [0, 1, 2, 3]
    """
    return search(pattern, time_limit).order


def find_hamiltonian_cycle(pattern: Any, time_limit: float | int = TIME_LIMIT) -> list[int] | None:
    """Finds a Hamiltonian cycle as a list of tokens; None if there is provably no cycle.

    Two tokens that attend to each other form a cycle, but a loop at a single token does not. The function searches for
    a path from token 0 to a copy of it, which receives all arcs into token 0.
    """
    entries = as_arcs(pattern).tocoo()  # row = where an arc ends
    n = entries.shape[0]
    ends = np.where(entries.row == 0, n, entries.row)
    order = search(csr_array((entries.data, (ends, entries.col)), shape=(n + 1, n + 1)), time_limit).order
    return order[:-1] if order is not None else None


def search(pattern: Any, time_limit: float | int = TIME_LIMIT) -> PathSearch:
    """Searches for a Hamiltonian path and reports how it was found or excluded.

    Relays are tokens that read all tokens and are read by all. R relays join up to R + 1 disjoint paths of the other
    tokens into one path (see :func:`theory.relays.relay_theorem`). Errors are those of :func:`find_hamiltonian_path`.
    """
    arcs = as_arcs(as_csr(pattern).T)  # row = where an arc starts
    n = arcs.shape[0]
    if apart := _unordered_pair(arcs):
        return PathSearch(None, "theorem", f"no walk leads from token {apart[0]} to token {apart[1]} or back")
    relays = np.flatnonzero(np.minimum(np.diff(arcs.indptr), np.bincount(arcs.indices, minlength=n)) == n - 1)
    rest, limit = np.setdiff1d(np.arange(n), relays), relays.size + 1
    cover = cover_with_few_paths(arcs[rest][:, rest], limit, time_limit)
    tokens, joined = (
        ("the other tokens", f"which relays join up to {limit}") if relays.size else ("the tokens", "not one")
    )
    if len(cover.paths) > limit >= cover.lower:
        needed = f"{tokens} need between {cover.lower} and {len(cover.paths)} disjoint paths, {joined}"
        raise Undecided(f"{needed}; exact search ran out of time, or there were too many arcs")
    order = join_with_relays([rest[path].tolist() for path in cover.paths], relays.tolist())
    if order is None:
        how = "exact search" if cover.is_searched else "degrees and matching"
        reason = f"{tokens} need at least {cover.lower} disjoint paths ({how}), {joined}"
        return PathSearch(None, "exhaustive" if cover.is_searched else "theorem", reason)
    if sorted(order) != list(range(n)) or not all(arcs[source, target] for source, target in pairwise(order)):
        raise AssertionError(f"the order found does not follow the arcs: {order}")
    how = "by exact search" if cover.is_searched else "from a maximum matching"
    return PathSearch(order, "instance", f"paths {how}, joined by relays" if relays.size else f"a path {how}")


def join_with_relays(paths: Sequence[Sequence[int]], relays: Sequence[int]) -> list[int] | None:
    """Joins consecutive paths by relays, and appends the unused relays. Returns None if there are too few relays."""
    if len(paths) > len(relays) + 1:
        return None
    pieces = [[*path, *relays[place : place + 1]] for place, path in enumerate(paths)]
    return [int(token) for piece in [*pieces, relays[len(paths) :]] for token in piece]


def _unordered_pair(arcs: csr_array) -> tuple[int, int] | None:
    """Finds two tokens with no walk between them, which excludes a Hamiltonian path. Returns None if there are none.

    Such tokens exist if and only if the topological order of the strong components is not unique.
    """
    n_components, label = connected_components(arcs, directed=True, connection="strong")
    sorter = TopologicalSorter({component: set[int]() for component in range(n_components)})
    for start, end in set(zip(*(label[tokens].tolist() for tokens in arcs.nonzero()), strict=True)):
        if start != end:
            sorter.add(end, start)
    sorter.prepare()
    while ready := sorter.get_ready():
        if len(ready) > 1:
            return int(np.argmax(label == ready[0])), int(np.argmax(label == ready[1]))
        sorter.done(*ready)
    return None
