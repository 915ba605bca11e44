"""Hamiltonian paths through relays: the relay theorem, explicit paths, and the paper's walk, which is not a path.

Invalid sizes, arcs, cycles and relays raise SbmtError.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from sbmt.errors import SbmtError, check_sizes, choose, is_integer
from theory.checks import as_list
from theory.hamiltonian import find_hamiltonian_cycle, join_with_relays
from theory.path_cover import TIME_LIMIT, as_arcs, smallest_cover
from theory.patterns import Relays, blocks, relay_tokens


@dataclass(frozen=True)
class RelayVerdict:
    """The result of the relay theorem for a union of block arcs and relays."""

    path_cover: int  # smallest number of vertex-disjoint paths that cover the non-relays
    limit: int  # R + 1, the number of paths that R relays can join
    ham_path: bool
    ham_cycle: bool  # with three tokens or more
    order: list[int] | None  # a Hamiltonian path, if there is one


def relay_theorem(
    n: int, k: int, block_arcs: Sequence[Sequence[int]], relays: Relays = "last", time_limit: float | int = TIME_LIMIT
) -> RelayVerdict:
    """Decides whether the union of block arcs and relays, with arcs to and from all tokens, has a Hamiltonian path.

    With R relays and arcs D among the other N = n − R tokens, a path exists if and only if pc(D) ≤ R + 1. If R ≥ 1 and
    n ≥ 3, a cycle exists if and only if pc(D) ≤ R. Proof: deleting the R relays from a path leaves at most R + 1
    non-empty paths (from a cycle, at most R), which cover D. Conversely, the paths of a cover can be joined by one
    relay between any two, and the unused relays follow at the end.

    Without block arcs, pc(D) = N, so there is a path if and only if n ≤ 2R + 1. With complete blocks, pc(D) is the
    number of blocks that contain a non-relay, so k relays are always enough.

    Arcs are [from, to], and arcs at relays are ignored. Raises :class:`~theory.path_cover.Undecided` if the solver does
    not find the fewest paths within ``time_limit`` seconds.

    Example:
        >>> relay_theorem(9, 4, []).ham_path, relay_theorem(10, 4, []).ham_path
        (True, False)
    """
    chosen = relay_tokens(n, k, relays)
    arcs = as_arcs(_matrix(n, block_arcs))
    rest = np.setdiff1d(np.arange(n), np.array(chosen, dtype=np.int64))
    cover = smallest_cover(arcs[rest][:, rest], time_limit)
    order = join_with_relays([rest[path].tolist() for path in cover.paths], chosen)
    if chosen:
        has_cycle = n >= 3 and cover.lower <= len(chosen)
    else:  # without relays the theorem does not apply
        has_cycle = n >= 3 and find_hamiltonian_cycle(arcs.T, time_limit) is not None
    return RelayVerdict(cover.lower, len(chosen) + 1, order is not None, has_cycle, order)


def canonical_path(n: int, k: int, relays: Relays = "last") -> list[int] | None:
    """Builds a Hamiltonian path for complete blocks in O(n), with non-relays block by block and relays between blocks.

    Returns None if there are too few relays, in which case no path exists.

    Example:
        >>> canonical_path(16, 4)
        [0, 1, 2, 3, 12, 4, 5, 6, 7, 13, 8, 9, 10, 11, 14, 15]
    """
    block, chosen = blocks(n, k), relay_tokens(n, k, relays)
    rest = np.delete(np.arange(n), chosen)
    borders = np.flatnonzero(np.diff(block[rest])) + 1
    return join_with_relays([tokens.tolist() for tokens in np.split(rest, borders) if tokens.size], chosen)


def one_relay_per_block_path(n: int, cycles: Sequence[Sequence[int]], relays: Sequence[int]) -> list[int]:
    """Builds a Hamiltonian path from a Hamiltonian cycle and one relay per block, which repairs the paper's proof.

    The path follows each cycle from the successor of its relay to the relay. From there, an arc leads to the next
    cycle. No token is visited twice, and the arcs of A1 and A2 suffice.

    Each cycle lists the tokens of a block along its arcs; the relays are one token of each cycle, in any order.

    Example:
        >>> one_relay_per_block_path(6, [[0, 2, 1], [3, 4, 5]], [0, 4])
        [2, 1, 0, 5, 3, 4]
    """
    check_sizes(n=n)
    expected, do = f"cycles that visit each of {n} tokens once", "give one cycle per block"
    listed = [as_list(tokens, expected, do) for tokens in as_list(cycles, expected, do)]
    visited = [token for tokens in listed for token in tokens]
    if not all(map(is_integer, visited)) or sorted(visited) != list(range(n)):
        raise SbmtError(expected, listed, do)
    chosen = as_list(relays, "a list of relays", "use relays='per_block'")
    found = [[place for place, token in enumerate(tokens) if token in chosen] for tokens in listed]
    if len(chosen) != len(listed) or any(len(places) != 1 for places in found) or not all(map(is_integer, chosen)):
        raise SbmtError("one relay in every block", chosen, "use relays='per_block'")
    pieces = [tokens[place + 1 :] + tokens[: place + 1] for tokens, (place,) in zip(listed, found, strict=True)]
    return [token for piece in pieces for token in piece]


def paper_walk(n: int, k: int, relay: str = "same") -> list[int]:
    """Returns the walk of the paper's proof, which visits a whole block, a relay, the next whole block, and so on.

    If k ≥ 2, the walk visits tokens twice: every relay used as a bridge also lies in a block that is visited as a
    whole, which adds k − 1 visits. ``relay="same"`` uses the first relay at every hop, and ``"next"`` a new one.
    """
    block, chosen = blocks(n, k), relay_tokens(n, k)
    step = choose("relay", relay, {"same": 0, "next": 1})
    walk: list[int] = []
    for b in range(k):
        walk += np.flatnonzero(block == b).tolist()
        walk += [chosen[b * step]] if b + 1 < k else []
    return walk


def counterexample() -> tuple[int, int, list[tuple[int, int]]]:
    """Returns the smallest n and k, with block arcs such that each block has a Hamiltonian cycle but the union no path.

    This case has n = 18 and k = 3. Deleting the relays 15, 16 and 17 from the last cycle leaves three tokens without
    arcs, so five paths are needed, but three relays can join only four.
    """
    cycles = ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 15, 13, 16, 14, 17])
    arcs = [(a, b) for cycle in cycles for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
    return 18, 3, arcs


def _matrix(n: int, arcs: Sequence[Sequence[int]]) -> csr_array:
    """Converts arcs [from, to] to a sparse boolean matrix."""
    listed = as_list(arcs, "a list of arcs [from, to]", "give pairs of integers")
    is_pairs = all(np.shape(arc) == (2,) for arc in listed)
    ends = np.array(listed if is_pairs and listed else np.zeros((0, 2), dtype=np.int64))
    if not is_pairs or ends.dtype.kind not in "iu" or ends.min(initial=0) < 0 or ends.max(initial=0) >= n:
        raise SbmtError(f"arcs [from, to] between tokens in [0, {n})", listed[:5], "give pairs of integers")
    return csr_array((np.ones(len(ends), dtype=bool), tuple(ends.T)), shape=(n, n))
