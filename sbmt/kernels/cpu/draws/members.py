"""What a draw looks up: the keys of each pair of parts, and how much of them is in reach of each pair of a query."""

from typing import NamedTuple

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.draws.candidates import WORD
from sbmt.kernels.cpu.toolchain import inlined, kernel
from sbmt.kernels.cpu.vectors.search import LINE
from sbmt.kernels.cpu.vectors.sums import dot, running_sums

LAST = 4294967295  # random words stay below it
HALF, KEY = np.uint64(32), np.uint64(LAST)  # of an entry of members
BLOCK = LINE // 8  # entries, as many as a search looks at together


class Members(NamedTuple):
    """The keys of each pair v of parts of a group, ascending, in blocks ``first[graph, g, v]`` … of eight entries.

    The lower half of an entry is a key. The upper one sums up how much it and those before it are in the pair, in units
    of 2⁻³² of the ``total``, as :class:`~sbmt.kernels.cpu.draws.lookup_tables.Tables` does. The largest entry there can
    be fills up the last block of a pair. Pairs of a part of the second partition lie side by side.
    """

    first: np.ndarray  # (graphs, g, s² + 1), of which the last is where blocks end
    entry: np.ndarray  # uint64 (8 · blocks,)
    last: np.ndarray  # uint32 (blocks and more,), the upper half of the last entry of each, for a search of 16
    total: np.ndarray  # (graphs, g, s²)


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
def read_groups(start, stop, active, model, n_keys, members, reach):
    """Lists the members and sums up the reach of groups start … stop, numbered across graphs."""
    n_groups = model.blocks.shape[1] // 2
    while start < stop:
        graph, first = start // n_groups, start % n_groups
        last = min(n_groups, first + stop - start)
        list_members(graph, first, last, active, model, n_keys, members)
        for g in range(first, last):
            sum_reach(graph, g, model.blocks, members.total[graph, g], reach)
        start += last - first


@kernel
def list_members(graph, first_group, last_group, active, model, n_keys, members):
    """Lists the members of some groups of a graph by counting: of each pair of parts first how many, then which."""
    n_active, n_blocks = uint64(len(active)), blocks_of_group(n_keys, members.total.shape[2], active)
    begin, end = uint64(graph * n_keys), uint64((graph + 1) * n_keys)
    first, total, entry = members.first[graph], members.total[graph], members.entry
    place, so_far, scale = np.zeros(total.size, np.int64), np.zeros(total.size), np.empty(total.size)
    for j in range(begin, end):
        for g in range(uint64(first_group), uint64(last_group)):
            one = uint64(2) * g * n_active
            for s in range(one, one + n_active):
                for t in range(one + n_active, one + uint64(2) * n_active):
                    v, share = _pair(j, g, s, t, model)
                    place[v] += share > 0
                    so_far[v] += share
    for g in range(first_group, last_group):
        next_one = (graph * first.shape[0] + g) * n_blocks
        for i in range(total.shape[1]):  # counts become starts
            v = g * total.shape[1] + i
            first[g, i], total[g, i] = next_one, so_far[v]
            next_one, place[v] = next_one + (place[v] + BLOCK - 1) // BLOCK, next_one * BLOCK
            scale[v] = WORD / so_far[v] if so_far[v] > 0 else 0.0
            so_far[v] = 0.0
        first[g, total.shape[1]] = next_one
    for j in range(begin, end):
        for g in range(uint64(first_group), uint64(last_group)):
            one = uint64(2) * g * n_active
            for s in range(one, one + n_active):
                for t in range(one + n_active, one + uint64(2) * n_active):
                    v, share = _pair(j, g, s, t, model)
                    so_far[v] += share
                    if share > 0:
                        word = uint64(min(so_far[v] * scale[v] + 0.5, LAST))
                        entry[uint64(place[v])] = word << HALF | (j - begin)
                        place[v] += 1
    _close_blocks(graph, first_group, last_group, place, members)


@kernel
def _close_blocks(graph, first_group, last_group, end_of_pair, members):
    """Makes the last entry of each pair the largest, fills up its last block, and reads off where each block ends."""
    first, entry = members.first[graph], members.entry
    for g in range(first_group, last_group):
        for i in range(first.shape[1] - 1):
            begin, end = uint64(first[g, i]), uint64(first[g, i + 1])
            filled = uint64(end_of_pair[g * (first.shape[1] - 1) + i])
            if begin < end:
                entry[filled - uint64(1)] |= np.uint64(LAST) << HALF
            for e in range(filled, end * uint64(BLOCK)):
                entry[e] = np.uint64(LAST) << HALF | KEY
            for block in range(begin, end):
                members.last[block] = entry[block * uint64(BLOCK) + uint64(BLOCK - 1)] >> HALF


@kernel
def blocks_of_group(n_keys, n_pairs, active):
    """How many blocks the pairs of a group take at most."""
    return n_keys * len(active) ** 2 // BLOCK + n_pairs


@inlined
def _pair(key, g, s, t, model):
    """The pair of parts of group g which are a key's s-th and t-th, and how much the key belongs to it."""
    size = uint64(model.blocks.shape[2])
    at = uint64(2) * g * size
    a, b = uint64(model.key_part[key, s]) - at, uint64(model.key_part[key, t]) - at - size
    return (g * size + b) * size + a, np.float64(model.key_weight[key, s]) * model.key_weight[key, t]


@kernel
def sum_reach(graph, g, blocks, in_pairs, reach):
    """Fills the reach of a group of a graph from how much keys are in each pair."""
    size, width = blocks.shape[2], reach.first.shape[1]
    shape = size, width  # zeros fill up the rows
    of_first, of_second, shares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    of_first[:, :size] = blocks[graph % blocks.shape[0], 2 * g]
    of_second[:, :size] = blocks[graph % blocks.shape[0], 2 * g + 1]
    shares[:, :size] = in_pairs.reshape(size, size)
    of_parts = np.zeros((1, width))  # R_a
    for a in range(size):
        at = ((graph * (blocks.shape[1] // 2) + g) * size + a) * size
        for c in range(size):
            of_parts[0, c] = _sum_up(of_first, a, shares, c, reach.first, at + c)
        for d in range(size):
            reach.total[graph, g, a, d] = _sum_up(of_second, d, of_parts, 0, reach.second, at + d)


@inlined
def _sum_up(x, i, y, j, cumulative, row):
    """The scalar product of rows of two matrices, and in a row of a third the sums so far, in parts of it."""
    width = uint64(x.shape[1])
    x_start, y_start, out = uint64(i) * width, uint64(j) * width, uint64(row) * width
    whole = dot(x, x_start, y, y_start, width)
    if whole > 0.0:
        running_sums(WORD / whole, LAST, x, x_start, y, y_start, width, cumulative, out)
    else:
        cumulative[row] = LAST
    return whole
