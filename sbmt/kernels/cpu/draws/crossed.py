"""Drawing edges where clusters are pairs of parts: from the row to a pair, from there to a key."""

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from sbmt.kernels.cpu.crossed import rate_of_key, rates_of_row
from sbmt.kernels.cpu.draws.bounds import real_tokens
from sbmt.kernels.cpu.draws.candidates import CANDIDATE, WORD, Stream, sort_distinct, word_at
from sbmt.kernels.cpu.draws.pieces import draw_in_pieces, join
from sbmt.kernels.cpu.draws.rows import toss
from sbmt.kernels.cpu.launch import active_parts
from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.philox import BATCH, fill_exponentials
from sbmt.kernels.cpu.prefetch import prefetch
from sbmt.kernels.cpu.search import LANES, first_above
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import CrossedFactors, as_arrays

_LAST = 4294967295  # random words stay below it
_HALF, _KEY = np.uint64(32), np.uint64(_LAST)  # of an entry of members
_AHEAD = np.uint64(8)  # points before it is searched, a place among the members is asked for
_BEFORE = np.uint64(LANES // 2)  # places that a search begins before the one that it guesses
_BELOW_ONE = 1 - 2**-20  # of a piece: sums in float32 are right to a tenth of what is left out
_WORK = 512  # roughly, per row
_ROWS, _POINTS = 64, 1 << 12  # that are drawn at a time
_ALL_KEYS = -1.0
_DENSE = 0.5  # points per key from which on a row is drawn key by key


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
    sum over c, ``first`` the inner one over b. The last of s sums is 1, and so are those that fill up a multiple of 16.
    """

    total: np.ndarray  # (graphs, g, s, s): a, d
    second: np.ndarray  # float32 (graphs · g · s · s, s and what fills them up): a, d, c
    first: np.ndarray  # likewise: a, c, b


class Points(NamedTuple):
    """Points of some rows: those of the i-th are ``first[i]`` … ``first[i + 1]``."""

    first: np.ndarray
    piece: np.ndarray  # int32
    place: np.ndarray  # in its piece, in [0, 1)
    key: np.ndarray  # int32


def sample_crossed(
    factors: CrossedFactors,
    shape: tuple[int, int, int, int],
    masks: tuple[Tensor | None, Tensor | None],
    exploration: float,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    r"""``row_ptr`` and ``keys`` of a mask whose edges have probability $1 - e^{-(r_{ij} + \delta)}$, independently.

    A row's Poisson points lie on a line on which a pair (a, d) of the query's parts is $\hat Q_{ia} \hat Q_{id}
    \sum_{bc} S_{ab} S_{dc} \sum_j \hat K_{jb} \hat K_{jc}$ long, and exploration $\delta n$. Each falls into a pair (b,
    c) of the keys' parts and there names a key, in proportion to what they add to this; keys named twice are merged.
    There is nothing to thin, and no product with any key.

    Cost: O(n g a² + g s³ + points · (g a² + s)), for g groups of partitions into s parts, a of them active.
    """
    batch, heads, n_queries, n_keys = shape
    model, n_graphs, active = as_arrays(factors), batch * heads, active_parts(factors)
    n_groups, size = factors.blocks.shape[1] // 2, factors.blocks.shape[2]
    n_entries = n_keys * n_groups * len(active) ** 2
    n_pairs, entry = n_groups * size**2, np.empty(n_graphs * n_entries + LANES, np.uint64)
    members = Members(np.empty((n_graphs, n_pairs + 1), np.int64), entry, np.empty((n_graphs, n_pairs)))
    in_parallel(list_members, equal_parts(n_graphs, 4 * n_entries), active, model, n_keys, members)
    total, width = np.empty((n_graphs, n_groups, size, size)), -(-size // LANES) * LANES
    sums = (torch.empty(total.size, width, dtype=torch.float32) for _ in range(2))  # aligned with lines of the cache
    reach = Reach(total, *map(as_arrays, sums))
    in_parallel(sum_reach, equal_parts(n_graphs, 8 * n_groups * size**3), model.blocks, members.total, reach)
    real = real_tokens(shape, *masks)
    counts = np.empty(n_graphs * n_queries, np.int64)
    given = active, model, members, reach, real, _DENSE, exploration, seed, first_example, counts
    return join(counts, draw_in_pieces(draw_pieces, equal_parts(counts.size, _WORK), n_keys, *given))


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
                    word = uint64(min(so_far[v] * scale[v] + 0.5, _LAST))
                    entry[uint64(begin[v])] = word << _HALF | uint64(j - graph * n_keys)
                    begin[v] += 1
        for v in range(n_pairs - 1, -1, -1):  # each start has moved to its end, which is the next one's start
            if begin[v] > (begin[v - 1] if v else graph * n_keys * n_entries):
                entry[begin[v] - 1] |= np.uint64(_LAST) << _HALF
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
    scale = 1.0 / whole if whole > 0.0 else 0.0
    for i in range(x.shape[0] - 1):
        so_far += x[i] * y[i]
        cumulative[i] = so_far * scale
    cumulative[x.shape[0] - 1 :] = 1.0
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


@kernel
def draw_pieces(start, stop, pieces, *arguments):
    """Draws the rows that are left of pieces start … stop, as many of each as there is room for."""
    row, end, found, out = pieces
    for piece in range(start, stop):
        row[piece], found[piece] = draw_rows(row[piece], end[piece], out[piece], *arguments)


@kernel
def draw_rows(start, stop, out, active, model, members, reach, real, dense, exploration, seed, first_example, counts):
    """Draws rows start … stop into ``out`` until it is full; returns which row is next, and how many keys there are.

    Some rows are drawn at a time, each step for all their points, so that look-ups overlap.
    """
    is_real_query, real_keys, n_real = real
    n_queries, n_keys, heads = is_real_query.shape[1], real_keys.shape[1], model.blocks.shape[0]
    room = _POINTS + 2 * n_keys
    points = Points(np.empty(_ROWS + 1, np.int64), np.empty(room, np.int32), np.empty(room), np.empty(room, np.int32))
    proposed, bitmap = np.empty(n_keys, np.int32), np.zeros((n_keys + 63) // 64, np.uint64)
    coins, words = np.empty(n_keys + 4 * BATCH), np.empty((4, BATCH), np.uint32)
    end, row = 0, start
    while row < stop:
        next_row = scatter(row, stop, active, model, reach.total, real, dense, exploration, seed, first_example, points)
        find_pairs(row, next_row, n_queries, active, model.query_part, reach, points)
        name_keys(row, next_row, n_queries, real_keys, n_real, heads, members, points)
        for this in range(row, next_row):
            example, head = this // n_queries // heads, this // n_queries % heads
            first, last = points.first[this - row], points.first[this - row + 1]
            if last > first and points.place[first] == _ALL_KEYS:
                keys = real_keys[example, : n_real[example]]
                toss(keys.size, Stream(seed, this % n_queries, head, example + first_example), words, coins)
                offset = this // n_queries * n_keys
                count = _visit(keys, active, model, this, head, offset, exploration, coins, proposed)
            else:
                count = sort_distinct(points.key[first:last], bitmap, proposed)
            if end + count > out.shape[0]:
                return this, end
            out[end : end + count] = proposed[:count]
            counts[this] = count
            end += count
        row = next_row
    return stop, end


@kernel
def scatter(start, stop, active, model, total, real, dense, exploration, seed, first_example, points):
    """Scatters Poisson points of rate 1 on the lines of some rows; returns the row after the last of them.

    A line has a piece for each pair of a query's parts of a group's two partitions, and one for exploration. A row that
    would have ``dense`` points per key or more gets one that says :data:`_ALL_KEYS`.
    """
    first, piece, place, _ = points
    part, weight, (heads, n_partitions, size, _) = model.query_part, model.query_weight, model.blocks.shape
    is_real_query, _, n_real = real
    n_queries, n_active = is_real_query.shape[1], uint64(len(active))
    line = np.full(n_partitions // 2 * len(active) ** 2 + LANES, np.inf)
    gaps, words = np.empty(2 * BATCH), np.empty((4, BATCH), np.uint32)
    count = 0
    for row in range(start, min(stop, start + _ROWS)):
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        first[row - start] = begin = count
        if not is_real_query[example, row % n_queries]:
            continue
        end, last = 0.0, 0
        for g in range(n_partitions // 2):
            one, at = 2 * uint64(g) * n_active, 2 * g * size
            for s in range(one, one + n_active):
                for t in range(one + n_active, one + 2 * n_active):
                    a, d = uint64(part[row, s] - at), uint64(part[row, t] - at - size)
                    end += np.float64(weight[row, s]) * weight[row, t] * total[graph, g, a, d]
                    line[last] = end  # lengths become ends
                    last += 1
        end += exploration * n_real[example]
        line[last] = end
        if end >= dense * n_real[example]:
            place[count], piece[count] = _ALL_KEYS, last
            count += 1
        else:
            point, block = 0.0, 0
            while point < end:
                fill_exponentials(gaps, words, seed, block, row % n_queries, head + CANDIDATE, example + first_example)
                block += BATCH
                for gap in gaps:
                    point += gap
                    if point >= end or count == place.size:
                        break
                    place[count] = point
                    count += 1
            for i in range(begin, count):
                at = _first_above(line, uint64(0), place[i])
                before = line[at - uint64(1)] if at else 0.0
                piece[i], place[i] = at, (place[i] - before) / (line[at] - before)
        if count > _POINTS:
            first[row - start + 1] = count
            return row + 1
    first[min(stop - start, _ROWS)] = count
    return min(stop, start + _ROWS)


@kernel
def find_pairs(start, stop, n_queries, active, part, reach, points):
    """Replaces each point's piece by the pair (b, c) of parts that it falls into, and its place by that in the pair."""
    first, piece, place, _ = points
    n_active, n_groups, size = uint64(len(active)), uint64(reach.total.shape[1]), uint64(reach.total.shape[2])
    n_pieces = n_active * n_active * n_groups
    for this in range(start, stop):
        row, graph = uint64(this), uint64(this // n_queries)
        for i in range(uint64(first[this - start]), uint64(first[this - start + 1])):
            at = uint64(piece[i])
            if at == n_pieces:
                piece[i] = -1
                continue
            g, s, t = at // (n_active * n_active), at // n_active % n_active, at % n_active
            one = uint64(2) * g
            a = uint64(part[row, one * n_active + s]) - one * size
            d = uint64(part[row, (one + uint64(1)) * n_active + t]) - (one + uint64(1)) * size
            sums = ((graph * n_groups + g) * size + a) * size
            c, here = _find(reach.second, sums + d, place[i])
            b, here = _find(reach.first, sums + c, here)
            piece[i], place[i] = (g * size + c) * size + b, here


@kernel
def _find(sums, line, place):
    """Which of the shares of a whole, summed up in a line, a place in it falls into, and where in the share that is."""
    here = np.float32(place if place < _BELOW_ONE else _BELOW_ONE)
    found = _first_above(sums, line * uint64(sums.shape[1]), here)
    before = np.float64(sums[line, found - uint64(1)]) if found else 0.0
    return found, max(place - before, 0.0) / (sums[line, found] - before)


@kernel
def _first_above(ascending, start, x):
    """How many numbers from a place on come before the first that is above ``x``, which there must be."""
    found = at = first_above(ascending, start, x)
    while at == LANES:
        at = first_above(ascending, start + found, x)
        found += at
    return found


@kernel
def name_keys(start, stop, n_queries, real_keys, n_real, heads, members, points):
    """Writes the key that each point names: of its pair in proportion to memberships, or any real one."""
    first, pair, place, key = points
    n_points = first[stop - start]
    for row in range(start, stop):
        graph = uint64(row // n_queries)
        example = graph // uint64(heads)
        for i in range(uint64(first[row - start]), uint64(first[row - start + 1])):
            later = i + _AHEAD
            if later < n_points and pair[later] >= 0:
                prefetch(members.entry, _guess(graph, pair[later], place[later], members)[1])
            if pair[i] < 0:
                word = uint64(word_at(place[i], 1.0))
                key[i] = real_keys[example, word * uint64(n_real[example]) >> _HALF]
                continue
            begin, j, last_of_word = _guess(graph, pair[i], place[i], members)
            while j > begin and members.entry[j - uint64(1)] > last_of_word:
                j -= min(j - begin, uint64(LANES))
            key[i] = np.int32(members.entry[j + _first_above(members.entry, j, last_of_word)] & _KEY)


@kernel
def _guess(graph, pair, place, members):
    """Where a pair's members begin, where to search for that of a point, and the last entry of its word."""
    word, v = uint64(word_at(place, 1.0)), uint64(pair)
    begin, end = uint64(members.first[graph, v]), uint64(members.first[graph, v + uint64(1)])
    guess = word * (end - begin) >> _HALF  # were all in the pair alike
    return begin, begin + guess - min(guess, _BEFORE), word << _HALF | _KEY


@kernel
def _visit(keys, active, model, row, head, offset, exploration, coins, found):
    """Writes the keys whose coin is below their probability, and returns how many there are."""
    part, weight, count = model.key_part, model.key_weight, 0
    rates = np.empty(model.blocks.shape[1] * model.blocks.shape[2], model.blocks.dtype)
    rates_of_row(row, head, active, model.query_part, model.query_weight, model.blocks, rates)
    for i in range(keys.size):
        rate = exploration + rate_of_key(rates, active, part, weight, offset + keys[i])
        found[count] = keys[i]
        count += coins[i] < -math.expm1(-rate)
    return count
