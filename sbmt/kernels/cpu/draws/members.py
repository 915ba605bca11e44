"""What a draw looks up: the keys of each pair of parts, and how much of them is in reach of each pair of a query."""

from typing import NamedTuple

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.draws.candidates import WORD
from sbmt.kernels.cpu.toolchain import inlined, kernel

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
    first, entry, total = members
    n_groups, n_active, n_pairs = uint64(model.blocks.shape[1] // 2), uint64(len(active)), total.shape[1]
    place, so_far, scale = np.empty(n_pairs, np.int64), np.empty(n_pairs), np.empty(n_pairs)
    for graph in range(start, stop):
        begin, end = uint64(graph * n_keys), uint64((graph + 1) * n_keys)
        place[:] = 0
        so_far[:] = 0.0
        for j in range(begin, end):
            for g in range(n_groups):
                one = uint64(2) * g * n_active
                for s in range(one, one + n_active):
                    for t in range(one + n_active, one + uint64(2) * n_active):
                        v, share = _pair(j, g, s, t, model)
                        place[v] += share > 0
                        so_far[v] += share
        total[graph] = so_far
        next_one = np.int64(begin * n_groups * n_active * n_active)
        for v in range(n_pairs):  # counts become starts
            first[graph, v] = next_one
            next_one += place[v]
            place[v] = first[graph, v]
            scale[v] = WORD / so_far[v] if so_far[v] > 0 else 0.0
        first[graph, n_pairs] = next_one
        so_far[:] = 0.0
        for j in range(begin, end):
            for g in range(n_groups):
                one = uint64(2) * g * n_active
                for s in range(one, one + n_active):
                    for t in range(one + n_active, one + uint64(2) * n_active):
                        v, share = _pair(j, g, s, t, model)
                        so_far[v] += share
                        if share > 0:
                            word = uint64(min(so_far[v] * scale[v] + 0.5, LAST))
                            entry[uint64(place[v])] = word << HALF | (j - begin)
                            place[v] += 1
        for v in range(n_pairs):
            if place[v] > first[graph, v]:
                entry[place[v] - 1] |= np.uint64(LAST) << HALF


@inlined
def _pair(key, g, s, t, model):
    """The pair of parts of group g which are a key's s-th and t-th, and how much the key belongs to it."""
    size = uint64(model.blocks.shape[2])
    at = uint64(2) * g * size
    a, b = uint64(model.key_part[key, s]) - at, uint64(model.key_part[key, t]) - at - size
    return (g * size + b) * size + a, np.float64(model.key_weight[key, s]) * model.key_weight[key, t]


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
