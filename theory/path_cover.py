"""Covering a digraph with vertex-disjoint paths: bounds, a quick cover, and a cover by the fewest paths.

Arcs are square boolean matrices, row = where an arc starts, column = where it ends; loops do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_bipartite_matching

from sbmt.errors import SbmtError
from theory.checks import as_list
from theory.conditions import as_csr
from theory.exact_search import TIME_LIMIT, Deadline, Undecided, solve_cover


@dataclass(frozen=True)
class PathCover:
    """Vertex-disjoint paths that cover all vertices, with a lower bound on how many are needed.

    Attributes:
        lower: No cover has fewer paths.
        paths: A cover; a smallest one if it has ``lower`` paths.
        is_searched: Whether ``lower`` rests on exhaustive search, and not only on degrees and matchings.
    """

    lower: int
    paths: list[list[int]]
    is_searched: bool = False

    @property
    def is_minimal(self) -> bool:
        """Whether it is proved that no cover has fewer paths."""
        return self.lower == len(self.paths)


def check_arcs(n: int, arcs: Sequence[Sequence[int]]) -> csr_array:
    """Arcs [from, to] as a sparse boolean matrix without loops.

    Raises:
        SbmtError: If an end is out of range.
    """
    listed = as_list(arcs, "a list of arcs [from, to]", "give pairs of integers")
    is_pairs = all(np.shape(arc) == (2,) for arc in listed)
    ends = np.array(listed if is_pairs and listed else np.zeros((0, 2), dtype=np.int64))
    if not is_pairs or ends.dtype.kind not in "iu" or ends.min(initial=0) < 0:
        raise SbmtError("arcs [from, to] between tokens counted from 0", listed[:5], "give pairs of integers")
    if ends.max(initial=0) >= n:
        raise SbmtError(f"arcs between tokens in [0, {n})", int(ends.max()), "count tokens from 0")
    return without_loops(csr_array((np.ones(len(ends), dtype=bool), tuple(ends.T)), shape=(n, n)))


def as_arcs(arcs: Any) -> csr_array:
    """Arcs given as a square boolean array or scipy sparse array, possibly empty, without loops.

    Raises:
        SbmtError: If it is anything else.
    """
    is_empty = getattr(arcs, "shape", None) == (0, 0)
    return csr_array((0, 0), dtype=bool) if is_empty else without_loops(as_csr(arcs))


def without_loops(arcs: csr_array) -> csr_array:
    """The arcs between different vertices, each once and in order."""
    coo = arcs.tocoo()
    keep = (coo.row != coo.col) & coo.data.astype(bool)
    clean = csr_array((np.ones(int(keep.sum()), dtype=bool), (coo.row[keep], coo.col[keep])), shape=arcs.shape)
    clean.sum_duplicates()
    return clean


def matching_deficit(arcs: Any) -> int:
    """N − ν for N vertices and a maximum matching of ν tails to heads: a lower bound on the paths of any cover.

    Raises:
        SbmtError: If ``arcs`` is not a square boolean array or scipy sparse array.
    """
    return int((_match(as_arcs(arcs)) < 0).sum())


def path_cover_bounds(arcs: Any) -> tuple[int, int]:
    """Bounds on the path cover number from degrees and a maximum matching.

    Lower: the largest of the numbers of sources and sinks and N − ν, since a cover with P paths uses N − P arcs, which
    form a matching. Upper: N − ν plus the number of cycles in that matching, each of which is cut open once.

    Raises:
        SbmtError: If ``arcs`` is not a square boolean array or scipy sparse array.
    """
    arcs = as_arcs(arcs)
    n = arcs.shape[0]
    if n == 0:
        return 0, 0
    pieces, is_cycle = _pieces(_match(arcs))
    sources = int((np.bincount(arcs.indices, minlength=n) == 0).sum())
    sinks = int((np.diff(arcs.indptr) == 0).sum())
    return max(sources, sinks, len(pieces) - sum(is_cycle), 1), len(pieces)


def quick_cover(arcs: csr_array) -> PathCover:
    """A cover from a maximum matching whose pieces are joined greedily.

    The matching consists of paths and cycles. A piece absorbs another if an arc leads from its end to the start of a
    path or to any vertex of a cycle. A complete graph is thus covered by one path.

    Cost: O(arcs · √n) for the matching.
    """
    starts, ends = arcs.nonzero()
    if arcs.shape[0] and int((ends == starts + 1).sum()) == arcs.shape[0] - 1:
        return PathCover(1, [list(range(arcs.shape[0]))])  # along the numbering, which is the easiest to read
    lower, _ = path_cover_bounds(arcs)
    pieces, is_cycle = _pieces(_match(arcs))
    owner = np.empty(arcs.shape[0], dtype=np.int64)
    is_entry = np.zeros(arcs.shape[0], dtype=bool)  # where a walk through a whole piece can begin
    for piece, tokens in enumerate(pieces):
        owner[tokens] = piece
        is_entry[tokens if is_cycle[piece] else tokens[:1]] = True

    def way_out(piece: int, end: int) -> int | None:
        targets = arcs.indices[arcs.indptr[end] : arcs.indptr[end + 1]]
        open_targets = targets[is_entry[targets] & (owner[targets] != piece)]
        return int(open_targets[0]) if open_targets.size else None

    for piece in range(len(pieces)):
        tokens = pieces[piece]
        if not tokens:
            continue
        if is_cycle[piece]:  # cut it open where an arc leads on
            cut = next((place for place, end in enumerate(tokens) if way_out(piece, end) is not None), -1)
            tokens = tokens[cut + 1 :] + tokens[: cut + 1]
        is_entry[tokens[1:]] = False
        is_entry[tokens[0]] = True
        while (target := way_out(piece, tokens[-1])) is not None:
            other = int(owner[target])
            place = pieces[other].index(target)
            more = pieces[other][place:] + pieces[other][:place]
            owner[more], is_entry[more], pieces[other] = piece, False, []
            tokens = tokens + more
        pieces[piece] = tokens
    return PathCover(lower, [tokens for tokens in pieces if tokens])


def cover_with_few_paths(
    arcs: csr_array, at_most: int | None = None, time_limit: float | int | Deadline = TIME_LIMIT
) -> PathCover:
    """A cover with the fewest paths, or one good enough to decide whether ``at_most`` paths suffice.

    The numbers of paths of the weak components add up. Each component is bounded first; while the question is open,
    those whose bounds differ are searched exactly. If time runs out first, ``lower`` and the number of paths differ.

    Args:
        arcs: Without loops.
        at_most: Stop once a cover has at most this many paths, or none can; None asks for the fewest.
        time_limit: Seconds for all components together.
    """
    deadline = time_limit if isinstance(time_limit, Deadline) else Deadline(time_limit)
    if arcs.shape[0] == 0:
        return PathCover(0, [])
    _, label = connected_components(arcs, directed=True, connection="weak")
    members = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    parts = [csr_array(arcs[tokens][:, tokens]) for tokens in members]
    covers = [quick_cover(part) for part in parts]
    open_ones = sorted((i for i, cover in enumerate(covers) if not cover.is_minimal), key=lambda i: parts[i].nnz)
    for i in open_ones:
        lower, upper = sum(cover.lower for cover in covers), sum(len(cover.paths) for cover in covers)
        if at_most is not None and (upper <= at_most or lower > at_most):
            break
        try:
            bound, paths = solve_cover(parts[i], deadline)
        except Undecided:
            continue
        best = min(paths, covers[i].paths, key=len)
        covers[i] = PathCover(max(bound, covers[i].lower), best, is_searched=True)
    paths = [tokens[path].tolist() for tokens, cover in zip(members, covers, strict=True) for path in cover.paths]
    return PathCover(sum(cover.lower for cover in covers), paths, any(cover.is_searched for cover in covers))


def path_cover(arcs: Any, time_limit: float | int = TIME_LIMIT) -> int:
    """The path cover number pc: the least number of vertex-disjoint paths that cover all vertices.

    Raises:
        SbmtError: If ``arcs`` is not a square boolean array or scipy sparse array.
        Undecided: If the time limit, in seconds, is reached.
    """
    return smallest_cover(as_arcs(arcs), time_limit).lower


def smallest_cover(arcs: csr_array, time_limit: float | int) -> PathCover:
    """A cover with the fewest paths; raises Undecided if it is not found in time."""
    cover = cover_with_few_paths(arcs, time_limit=time_limit)
    if not cover.is_minimal:
        raise Undecided(f"the path cover number is between {cover.lower} and {len(cover.paths)}")
    return cover


def _match(arcs: csr_array) -> np.ndarray:
    """The head matched to each tail in a maximum matching; −1 for an unmatched tail."""
    return maximum_bipartite_matching(arcs, perm_type="column")


def _pieces(head: np.ndarray) -> tuple[list[list[int]], list[bool]]:
    """The paths and cycles that a matching of tails to heads consists of."""
    after = head.tolist()
    has_tail = np.zeros(len(after), dtype=bool)
    has_tail[head[head >= 0]] = True
    is_seen = [False] * len(after)
    pieces, is_cycle = [], []
    for is_second_pass in (False, True):  # paths start where no arc ends; all other vertices lie on cycles
        for start in range(len(after)):
            if is_seen[start] or (has_tail[start] and not is_second_pass):
                continue
            piece, token = [], start
            while token >= 0 and not is_seen[token]:
                is_seen[token] = True
                piece.append(token)
                token = after[token]
            pieces.append(piece)
            is_cycle.append(is_second_pass)
    return pieces, is_cycle
