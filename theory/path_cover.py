"""Covers a digraph with the fewest vertex-disjoint paths, by bounds, a quick cover, and exact search.

Arcs are given as square boolean matrices. An arc starts at its row and ends at its column, and loops are ignored. A
Hamiltonian path is a cover by one path, so the same model for the constraint solver decides both problems.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from theory.checks import as_number
from theory.conditions import as_csr

TIME_LIMIT = 20.0  # seconds allowed for exact search
MAX_ARCS = 1_000_000  # a model with more arcs could not even be built within the time limit


class Undecided(RuntimeError):
    """Raised if nothing was found or excluded within the limits. This is an outcome, and not an error of the caller."""


@dataclass(frozen=True)
class PathCover:
    """Vertex-disjoint paths that cover all vertices, with a lower bound on their number."""

    lower: int  # no cover has fewer paths, so a cover with this number of paths is a smallest one
    paths: list[list[int]]
    is_searched: bool = False  # whether the bound rests on exhaustive search rather than on degrees and matchings alone


def as_arcs(arcs: Any) -> csr_array:
    """Converts a square boolean array or scipy sparse array to CSR form and removes its diagonal.

    Raises:
        SbmtError: If this is anything else. The functions below raise it, too.
    """
    coo = as_csr(arcs).tocoo()
    keep = coo.row != coo.col
    return csr_array((coo.data[keep], (coo.row[keep], coo.col[keep])), shape=coo.shape)


def matching_deficit(arcs: Any) -> int:
    """Returns N − ν for N vertices and a maximum matching of size ν, a lower bound on the size of a path cover."""
    return int((maximum_bipartite_matching(as_arcs(arcs), perm_type="column") < 0).sum())


def path_cover_bounds(arcs: Any) -> tuple[int, int]:
    """Bounds the path cover number from below and above, by degrees and a maximum matching.

    The lower bound is the largest of the number of sources, the number of sinks, and N − ν: a cover with P paths uses
    N − P arcs, which form a matching. The upper bound is N − ν plus the number of cycles, each of which is cut once.
    """
    lower, _, pieces = _bounds(as_arcs(arcs))
    return lower, len(pieces)


def path_cover(arcs: Any, time_limit: float | int = TIME_LIMIT) -> int:
    """Computes the path cover number pc, the smallest number of vertex-disjoint paths that cover all vertices.

    Raises:
        Undecided: If the time limit, in seconds, is reached.
    """
    return smallest_cover(as_arcs(arcs), time_limit).lower


def smallest_cover(arcs: csr_array, time_limit: float | int = TIME_LIMIT) -> PathCover:
    """Finds a cover with the fewest paths, or raises Undecided if none is found in time."""
    cover = cover_with_few_paths(arcs, time_limit=time_limit)
    if cover.lower < len(cover.paths):
        raise Undecided(f"the path cover number is between {cover.lower} and {len(cover.paths)}")
    return cover


def cover_with_few_paths(
    arcs: csr_array, at_most: int | None = None, time_limit: float | int = TIME_LIMIT
) -> PathCover:
    """Finds a cover with the fewest paths, or one good enough to decide whether ``at_most`` paths suffice.

    The numbers of paths of the weak components add up. Each component is bounded first. Components whose bounds differ
    are then searched exactly, until the question is decided. If time runs out, ``lower`` and the number of paths
    differ. Arcs must not be loops, and the time limit is in seconds for all components together.
    """
    end = monotonic() + as_number(time_limit, "a time limit of 0 seconds or more", "use 0 for cheap proofs alone", 0)
    if arcs.shape[0] == 0:
        return PathCover(0, [])
    _, label = connected_components(arcs, directed=True, connection="weak")
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    parts = [csr_array(arcs[tokens][:, tokens]) for tokens in members]
    covers = [quick_cover(part) for part in parts]
    open_ones = (i for i, cover in enumerate(covers) if cover.lower < len(cover.paths))
    for i in sorted(open_ones, key=lambda i: parts[i].nnz):
        lower, upper = sum(cover.lower for cover in covers), sum(len(cover.paths) for cover in covers)
        if at_most is not None and (upper <= at_most or lower > at_most):
            break
        try:
            found = solve_cover(parts[i], end - monotonic(), at_most and at_most - lower + covers[i].lower)
        except Undecided:
            continue
        best = min(found.paths, covers[i].paths, key=len)
        covers[i] = PathCover(max(found.lower, covers[i].lower), best, is_searched=True)
    paths = [tokens[path].tolist() for tokens, cover in zip(members, covers, strict=True) for path in cover.paths]
    return PathCover(sum(cover.lower for cover in covers), paths, any(cover.is_searched for cover in covers))


def quick_cover(arcs: csr_array) -> PathCover:
    """Joins the pieces of a maximum matching greedily into a cover.

    The pieces are paths and cycles. A piece is joined to another if an arc leads from its end to the start of a path or
    to any vertex of a cycle. A complete graph is thus covered by one path.

    Cost: O(arcs · √n) for the matching.
    """
    starts, ends = arcs.nonzero()
    if int((ends == starts + 1).sum()) == arcs.shape[0] - 1:
        return PathCover(1, [list(range(arcs.shape[0]))])  # in numerical order, which is easiest to read
    lower, head, pieces = _bounds(arcs)
    owner = np.empty(arcs.shape[0], dtype=np.int64)
    is_entry = np.zeros(arcs.shape[0], dtype=bool)  # where a walk through a whole piece can begin
    for piece, tokens in enumerate(pieces):
        owner[tokens] = piece
        is_entry[tokens if head[tokens[-1]] >= 0 else tokens[:1]] = True

    def way_out(piece: int, end: int) -> int | None:
        targets = arcs.indices[arcs.indptr[end] : arcs.indptr[end + 1]]
        open_targets = targets[is_entry[targets] & (owner[targets] != piece)]
        return int(open_targets[0]) if open_targets.size else None

    for piece, tokens in enumerate(pieces):
        if not tokens:
            continue
        if head[tokens[-1]] >= 0:  # a cycle, which is cut open where an arc leads out of it
            cut = next((place for place, end in enumerate(tokens) if way_out(piece, end) is not None), -1)
            tokens = tokens[cut + 1 :] + tokens[: cut + 1]
        is_entry[tokens] = False
        is_entry[tokens[0]] = True
        while (target := way_out(piece, tokens[-1])) is not None:
            other = int(owner[target])
            place = pieces[other].index(target)
            more = pieces[other][place:] + pieces[other][:place]
            owner[more], is_entry[more], pieces[other] = piece, False, []
            tokens = tokens + more
        pieces[piece] = tokens
    return PathCover(lower, [tokens for tokens in pieces if tokens])


def solve_cover(arcs: csr_array, time_limit: float | int, at_most: int | None = None) -> PathCover:
    """Finds a cover with few paths by the constraint solver; if time suffices, it is a smallest cover.

    The paths are circuits through a depot that is joined to all vertices, and departures from the depot are minimised.
    If ``at_most`` paths cannot cover the graph, ``lower`` is ``at_most + 1``, and every vertex is a path;
    ``at_most=1`` searches for a Hamiltonian path.

    Raises:
        Undecided: If no cover is found or excluded in time, or there are more than a million arcs.
    """
    n = arcs.shape[0]
    if arcs.nnz > MAX_ARCS or time_limit <= 0:
        raise Undecided(f"{arcs.nnz} arcs between {n} tokens are too many for the solver, or no time was left")
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    starts, ends = (places.tolist() for places in arcs.nonzero())
    pairs = [(i + 1, j + 1) for i, j in zip(starts, ends, strict=True)]  # the depot is 0
    pairs += [(0, i) for i in range(1, n + 1)] + [(i, 0) for i in range(1, n + 1)]
    used = {pair: model.new_bool_var("") for pair in pairs}
    (model.add_circuit if at_most == 1 else model.add_multiple_circuit)([(*pair, var) for pair, var in used.items()])
    departures = sum(used[0, i] for i in range(1, n + 1))
    if at_most is not None:
        model.add(departures <= at_most)
    model.minimize(departures)

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.catch_sigint_signal = False  # the solver would stop silently
    with ThreadPoolExecutor(1) as thread:
        search = thread.submit(solver.solve, model)
        try:
            status = solver.status_name(search.result())
        except BaseException:  # Ctrl-C, which Python handles only between its own steps
            solver.stop_search()
            raise
    if status == "INFEASIBLE" and at_most is not None:
        return PathCover(at_most + 1, [[i] for i in range(n)], is_searched=True)
    if status not in ("OPTIMAL", "FEASIBLE"):
        raise Undecided(f"no path cover was found in time for {n} tokens and {arcs.nnz} arcs")
    steps = [pair for pair, var in used.items() if solver.boolean_value(var)]
    after = {i: j for i, j in steps if i}
    paths = [[j] for i, j in steps if not i]
    for path in paths:
        while after[path[-1]]:
            path.append(after[path[-1]])
    lower = len(paths) if status == "OPTIMAL" else max(1, round(solver.best_objective_bound))
    return PathCover(lower, [[token - 1 for token in path] for path in paths], is_searched=True)


def _bounds(arcs: csr_array) -> tuple[int, np.ndarray, list[list[int]]]:
    """Returns a lower bound on a cover's paths, a matching of tails to heads (or −1), and its paths and cycles."""
    n, head = arcs.shape[0], maximum_bipartite_matching(arcs, perm_type="column")
    n_sources = int((np.bincount(arcs.indices, minlength=n) == 0).sum())
    lower = max(1, n_sources, int((np.diff(arcs.indptr) == 0).sum()), int((head < 0).sum()))
    pieces, is_seen = [], np.zeros(n, dtype=bool)
    for start in [*np.setdiff1d(np.arange(n), head), *range(n)]:  # no arc of a path ends at its start
        piece, token = [], int(start)
        while token >= 0 and not is_seen[token]:
            is_seen[token] = True
            piece.append(token)
            token = int(head[token])
        pieces += [piece] if piece else []
    return lower, head, pieces
