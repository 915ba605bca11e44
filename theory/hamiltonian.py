"""Condition 2: Hamiltonian paths of patterns, found with a witness, excluded with a proof, or left undecided.

Proofs are tried from cheap to expensive: the order of the strong components, then degrees and matchings together with
relays, and finally an exact search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from sbmt.errors import SbmtError, is_integer
from theory.checks import as_list
from theory.conditions import as_csr
from theory.exact_search import TIME_LIMIT, Deadline, Undecided, solve_circuit
from theory.path_cover import cover_with_few_paths, matching_deficit, without_loops

Evidence = Literal["theorem", "exhaustive", "instance", "simulated", "heuristic"]
"""What a statement rests on: a proved theorem applied to the case at hand, all cases gone through, the case itself
checked entry by entry, a share of random draws, or a heuristic, which proves nothing."""


@dataclass(frozen=True)
class PathSearch:
    """What a search for a Hamiltonian path or cycle established.

    Attributes:
        order: The tokens in the order of the path; None if there is none.
        evidence: ``"instance"`` if a path was found; ``"theorem"`` or ``"exhaustive"`` if none exists.
        reason: One sentence.
    """

    order: list[int] | None
    evidence: Evidence
    reason: str


def check_path(pattern: Any, order: Sequence[int] | np.ndarray) -> bool:
    """Whether ``order`` visits every token once along arcs: ``A[order[t + 1], order[t]]`` throughout.

    It only looks at the entries, independently of any solver.

    Raises:
        SbmtError: If ``order`` holds anything but integers.

    Example:
        >>> mask = np.tri(3, dtype=bool)
        >>> check_path(mask, [0, 1, 2]), check_path(mask, [2, 1, 0])
        (True, False)
    """
    tokens = as_list(order, "a list of tokens", "give the order of a path")
    if not all(map(is_integer, tokens)):
        raise SbmtError("tokens as integers", tokens[:5], "count them from 0")
    matrix = as_csr(pattern)
    if sorted(tokens) != list(range(matrix.shape[0])):
        return False
    rows = matrix.indptr
    return all(source in matrix.indices[rows[target] : rows[target + 1]] for source, target in pairwise(tokens))


def find_hamiltonian_path(pattern: Any, time_limit: float | int = TIME_LIMIT) -> list[int] | None:
    """A Hamiltonian path of a pattern's graph.

    Args:
        pattern: Square boolean array; row = query, so the arc of an entry goes from key to query.
        time_limit: Seconds for exact search.

    Returns:
        The tokens in the order of the path, or None if it is proved that there is none.

    Raises:
        SbmtError: If the pattern or the time limit is invalid.
        Undecided: If the time limit is reached.

    Paper: condition 2 of the theorem on universal approximation.

    Example:
        >>> find_hamiltonian_path(np.tri(4, dtype=bool))
        [0, 1, 2, 3]
        >>> find_hamiltonian_path(np.eye(2, dtype=bool)) is None
        True
    """
    return search(pattern, time_limit).order


def find_hamiltonian_cycle(pattern: Any, time_limit: float | int = TIME_LIMIT) -> list[int] | None:
    """The tokens of a Hamiltonian cycle in order; None if it is proved that there is none.

    Two tokens that attend each other form a cycle; a loop at a single token does not count as one.

    Raises:
        SbmtError: If the pattern or the time limit is invalid.
        Undecided: If the time limit is reached.
    """
    return search(pattern, time_limit, is_closed=True).order


def search(pattern: Any, time_limit: float | int = TIME_LIMIT, *, is_closed: bool = False) -> PathSearch:
    """A Hamiltonian path (or cycle) together with how it was found or excluded.

    Tokens that read all tokens and are read by all are relays. R relays join at most R + 1 disjoint paths of the other
    tokens into a path, or R into a cycle (see :func:`theory.relays.relay_theorem`).

    Raises:
        SbmtError: If the pattern or the time limit is invalid.
        Undecided: If the time limit is reached.
    """
    arcs, deadline = arcs_of(pattern), Deadline(time_limit)
    found = _search(arcs, deadline, is_closed)
    if found.order is not None:
        closing = found.order + found.order[:1] if is_closed else found.order
        is_right = sorted(found.order) == list(range(arcs.shape[0]))
        if not is_right or not all(arcs[source, target] for source, target in pairwise(closing)):
            raise AssertionError(f"the order found does not follow the arcs: {found.reason}")
    return found


def arcs_of(pattern: Any) -> csr_array:
    """The arcs key → query of a pattern, without loops; row = where an arc starts.

    Raises:
        SbmtError: If the pattern is not boolean or not square.
    """
    return without_loops(csr_array(as_csr(pattern).T))


def join_with_relays(paths: Sequence[Sequence[int]], relays: Sequence[int]) -> list[int] | None:
    """Joins paths with a relay between any two, and puts the unused relays at the end; None if relays are too few."""
    if len(paths) > len(relays) + 1:
        return None
    order: list[int] = []
    for place, path in enumerate(paths):
        order += [int(token) for token in path]
        order += [int(relay) for relay in relays[place : place + 1]]
    return order + [int(relay) for relay in relays[len(paths) :]]


def _search(arcs: csr_array, deadline: Deadline, is_closed: bool) -> PathSearch:
    n = arcs.shape[0]
    if n == 1:
        return PathSearch(None if is_closed else [0], "instance", "there is one token")
    for along in [] if is_closed else [list(range(n)), list(range(n))[::-1]]:  # the easiest to read
        if all(arcs[source, target] for source, target in pairwise(along)):
            return PathSearch(along, "instance", "a path along the numbering")
    chain = _chain_of_components(arcs)
    if isinstance(chain, str) or (is_closed and len(chain) > 1):
        return PathSearch(None, "theorem", chain if isinstance(chain, str) else "the graph is not strongly connected")
    if len(chain) == n:
        return PathSearch([int(tokens[0]) for tokens in chain], "instance", "the only order of a graph without cycles")
    relays = np.flatnonzero(np.minimum(np.diff(arcs.indptr), np.bincount(arcs.indices, minlength=n)) == n - 1)
    if relays.size:
        return _search_with_relays(arcs, relays, deadline, is_closed)
    cover = cover_with_few_paths(arcs, 1, 0.0)
    if cover.lower > 1:
        reason = f"any cover by disjoint paths has at least {cover.lower} of them (degrees and matching)"
        return PathSearch(None, "theorem", reason)
    if not is_closed and len(cover.paths) == 1:
        return PathSearch(cover.paths[0], "instance", "a maximum matching, its pieces joined")
    if is_closed and matching_deficit(arcs) > 0:
        return PathSearch(None, "theorem", "no cover by cycles (matching)")
    order = solve_circuit(arcs, deadline, is_closed=is_closed)
    if order is None:
        return PathSearch(None, "exhaustive", f"every order of {n} tokens excluded by the solver")
    return PathSearch(order, "instance", "found by the solver")


def _search_with_relays(arcs: csr_array, relays: np.ndarray, deadline: Deadline, is_closed: bool) -> PathSearch:
    rest = np.setdiff1d(np.arange(arcs.shape[0]), relays)
    limit = relays.size + (0 if is_closed else 1)
    cover = cover_with_few_paths(arcs[rest][:, rest], limit, deadline)
    if len(cover.paths) <= limit:
        order = join_with_relays([rest[path].tolist() for path in cover.paths], relays.tolist())
        return PathSearch(order, "instance", "disjoint paths of the other tokens, joined by relays")
    if cover.lower <= limit:
        needed = f"between {cover.lower} and {len(cover.paths)}"
        raise Undecided(f"the other tokens need {needed} paths, and relays can join at most {limit}")
    how = "exact search" if cover.is_searched else "degrees and matching"
    reason = f"the other tokens need at least {cover.lower} disjoint paths ({how}); relays can join at most {limit}"
    return PathSearch(None, "exhaustive" if cover.is_searched else "theorem", reason)


def _chain_of_components(arcs: csr_array) -> list[np.ndarray] | str:
    """The strong components in the only order in which a walk can visit them all, or why there is no such walk.

    Two components neither of which leads to the other exclude a Hamiltonian path; such a pair exists exactly if the
    topological order of the components is not unique.
    """
    n_components, label = connected_components(arcs, directed=True, connection="strong")
    starts, ends = (label[tokens] for tokens in arcs.nonzero())
    between = csr_array((np.ones(starts.size, dtype=np.int64), (starts, ends)), shape=(n_components, n_components))
    between = without_loops(between)
    waits_for = np.bincount(between.indices, minlength=n_components)
    ready = np.flatnonzero(waits_for == 0).tolist()
    chain: list[np.ndarray] = []
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    while ready:
        if len(ready) > 1:
            one, other = (int(members[component][0]) for component in ready[:2])
            return f"no walk leads from token {one} to token {other} or back"
        component = ready.pop()
        chain.append(members[component])
        nexts = between.indices[between.indptr[component] : between.indptr[component + 1]]
        waits_for[nexts] -= 1
        ready = nexts[waits_for[nexts] == 0].tolist()
    return chain
