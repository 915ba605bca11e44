"""What a draw looks up: the keys of each pair of parts, and how much of them is in reach of each pair of a query."""

from typing import NamedTuple

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.draws.candidates import WORD
from sbmt.kernels.cpu.toolchain import kernel

LAST = 4294967295  # random words stay below it
HALF, KEY = np.uint64(32), np.uint64(LAST)  # of an entry of members


class Members(NamedTuple):
    """The keys of each pair v of parts of a graph: ``entry[first[graph, v] : first[graph, v + 1]]``, ascending.

    The lower half of an entry is a key. The upper one sums up how much it and those before it are in the pair, in units
    of 2⁻³² of the ``total``, as :class:`~sbmt.kernels.cpu.draws.lookup_tables.Tables` does. Pairs come group by group;
    those of a part of a group's second partition lie side by side.
    """

    first: np.ndarray  # (graphs, k + 1)
    entry: np.ndarray  # uint64, with room for a search behind the last
    total: np.ndarray  # (graphs, k)


class Reach(NamedTuple):
    r"""How much keys are in reach of each pair (a, d) of a query's parts of a group's two partitions.

    With Σ, which says how much keys are in a pair (b, c) of parts of theirs, ``total`` is $\sum_c S_{dc} R_{ac}$, where
    $R_{ac} = \sum_b S_{ab} \Sigma_{cb}$. The other two sum these up, each in parts of its total: ``second`` the outer
    sum over c, ``first`` the inner one over b. Units are as above; the last of s sums is :data:`LAST`, and so are those
    that fill up a multiple of 16.
    """

    total: np.ndarray  # (graphs, g, s, s): a, d
    second: np.ndarray  # uint32 (graphs · g · s · s, s and what fills them up): a, d, c
    first: np.ndarray  # likewise: a, c, b


@kernel
def read_graphs(start, stop, active, model, n_keys, members, reach):
    """Lists the members and sums up the reach of graphs start … stop."""
    list_members(start, stop, active, model, n_keys, members)
    sum_reach(start, stop, model.blocks, members.total, reach)


@kernel
def list_members(start, stop, active, model, n_keys, members):
    """Lists the members of graphs start … stop by counting: of each pair of parts first how many, then which."""
    part, weight, size = model.key_part, model.key_weight, model.blocks.shape[2]
    first, entry, total = members
    n_pairs, n_entries = total.shape[1], model.blocks.shape[1] // 2 * len(active) ** 2
    pair, share, scale = np.empty(n_entries, np.int64), np.empty(n_entries), np.empty(n_pairs)
    for graph in range(start, stop):
        begin, sums = first[graph], total[graph]
        begin[:] = 0
        sums[:] = 0.0
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            _pairs_of(part, weight, j, size, active, pair, share)
            for i in range(uint64(n_entries)):
                v = uint64(pair[i])
                begin[v] += share[i] > 0
                sums[v] += share[i]
        place = graph * n_keys * n_entries
        for v in range(n_pairs):  # counts become starts
            count = begin[v]
            begin[v] = place
            place += count
        begin[n_pairs] = place
        so_far = np.zeros(n_pairs)
        for v in range(n_pairs):
            scale[v] = WORD / sums[v] if sums[v] > 0 else 0.0
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            _pairs_of(part, weight, j, size, active, pair, share)
            for i in range(uint64(n_entries)):
                v = uint64(pair[i])
                if share[i] > 0:
                    so_far[v] += share[i]
                    word = uint64(min(so_far[v] * scale[v] + 0.5, LAST))
                    entry[uint64(begin[v])] = word << HALF | uint64(j - graph * n_keys)
                    begin[v] += 1
        for v in range(n_pairs - 1, -1, -1):  # each start has moved to its end, which is the next one's start
            if begin[v] > (begin[v - 1] if v else graph * n_keys * n_entries):
                entry[begin[v] - 1] |= np.uint64(LAST) << HALF
            begin[v] = begin[v - 1] if v else graph * n_keys * n_entries


@kernel
def sum_reach(start, stop, blocks, in_pairs, reach):
    """Fills the reach of graphs start … stop from how much keys are in each pair."""
    total, second, first = reach
    n_groups, size = total.shape[1], total.shape[2]
    of_parts = np.empty(size)  # R_a
    for graph in range(start, stop):
        head = graph % blocks.shape[0]
        for g in range(n_groups):
            for a in range(size):
                at = ((graph * n_groups + g) * size + a) * size
                for c in range(size):
                    here = in_pairs[graph, (g * size + c) * size : (g * size + c + 1) * size]
                    of_parts[c] = _sum_up(blocks[head, 2 * g, a], here, first[at + c])
                for d in range(size):
                    total[graph, g, a, d] = _sum_up(blocks[head, 2 * g + 1, d], of_parts, second[at + d])


@kernel
def _sum_up(x, y, cumulative):
    """The scalar product of two vectors, whose sum so far it writes for every element but the last, in parts of it."""
    whole, so_far = 0.0, 0.0
    for i in range(x.shape[0]):
        whole += x[i] * y[i]
    scale = WORD / whole if whole > 0.0 else 0.0
    for i in range(x.shape[0] - 1):
        so_far += x[i] * y[i]
        cumulative[i] = min(so_far * scale + 0.5, LAST)
    cumulative[x.shape[0] - 1 :] = LAST
    return whole


@kernel
def _pairs_of(part, weight, key, size, active, pair, share):
    """The pairs of parts that a key belongs to, and how much."""
    i, j, n_active = uint64(0), uint64(key), uint64(len(active))
    for group in range(part.shape[1] // (2 * len(active))):
        one = 2 * uint64(group) * n_active
        for s in range(one, one + n_active):
            for t in range(one + n_active, one + 2 * n_active):
                a, b = part[j, s] - 2 * group * size, part[j, t] - (2 * group + 1) * size
                pair[i], share[i] = (group * size + b) * size + a, np.float64(weight[j, s]) * weight[j, t]
                i += uint64(1)
