"""Drawing edges where clusters are pairs of parts: from the row to a pair, from there to a key."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from sbmt.kernels.cpu.crossed import rate_of_key, rates_of_row
from sbmt.kernels.cpu.draws.bounds import real_tokens
from sbmt.kernels.cpu.draws.candidates import CANDIDATE, Stream, sort_distinct, word_at
from sbmt.kernels.cpu.draws.members import HALF, KEY, Members, Reach, read_graphs
from sbmt.kernels.cpu.draws.pieces import draw_in_pieces, join
from sbmt.kernels.cpu.draws.rows import toss
from sbmt.kernels.cpu.launch import active_parts
from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.philox import BATCH, fill_words, to_exponentials
from sbmt.kernels.cpu.prefetch import prefetch
from sbmt.kernels.cpu.search import LANES, first_above
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import CrossedFactors, as_arrays

_AHEAD = np.uint64(8)  # points before it is searched, a place among the members is asked for
_BEFORE = np.uint64(LANES // 2)  # places that a search begins before the one that it guesses
_BELOW_ONE = 1 - 2**-20  # of a piece: sums in float32 are right to a tenth of what is left out
WORK = 512  # multiplications that drawing a row takes as long as, roughly
_ROWS, _POINTS = 64, 1 << 12  # that are drawn at a time
_ALL_KEYS = -1.0
_DENSE = 0.5


class Points(NamedTuple):
    """Points of some rows: those of the i-th are ``first[i]`` … ``first[i + 1]``, certain keys before ``drawn[i]``."""

    first: np.ndarray
    drawn: np.ndarray
    piece: np.ndarray  # int32
    place: np.ndarray  # in its piece, in [0, 1)
    key: np.ndarray  # int32


class Real(NamedTuple):
    """Which tokens are real."""

    is_query: np.ndarray  # bool (batch, n_queries)
    is_key: np.ndarray  # bool (batch, n_keys)
    keys: np.ndarray  # int32 (batch, n_keys), the real ones first, ascending
    n_keys: np.ndarray  # (batch,), how many of them are real


class Source(NamedTuple):
    """All that decides which edges are drawn."""

    active: tuple[int, ...]
    model: CrossedFactors
    members: Members
    reach: Reach
    real: Real
    dense: float  # points per key from which on a row is drawn key by key
    exploration: float
    half_window: int  # edges between tokens at most so many places apart are certain; -1 for none
    seed: int
    first_example: int


class Scratch(NamedTuple):
    """What drawing some rows needs room for."""

    points: Points
    proposed: np.ndarray  # int32 (n_keys,)
    bitmap: np.ndarray  # zeros
    coins: np.ndarray
    words: np.ndarray


def sample_crossed(*arguments: Any) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges of :func:`source_of`, which takes the same arguments."""
    source = source_of(*arguments)
    n_keys, counts = source.real.is_key.shape[1], np.empty(source.model.query_part.shape[0], np.int64)
    return join(counts, draw_in_pieces(draw_pieces, equal_parts(counts.size, WORK), n_keys, source, counts))


def source_of(
    factors: CrossedFactors,
    shape: list[int],
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    half_window: int,
    seed: int,
    first_example: int,
) -> Source:
    r"""Prepares to draw a mask whose edges have probability $1 - e^{-(r_{ij} + \delta)}$, independently.

    A row's Poisson points lie on a line on which a pair (a, d) of the query's parts is $\hat Q_{ia} \hat Q_{id}
    \sum_{bc} S_{ab} S_{dc} \sum_j \hat K_{jb} \hat K_{jc}$ long, and exploration $\delta n$. Each falls into a pair (b,
    c) of the keys' parts and there names a key, in proportion to what they add to this; keys named twice are merged.
    There is nothing to thin, and no product with any key.

    Cost: O(n g a² + g s³) here and O(points · (g a² + s)) for drawing, for g groups of partitions into s parts, a of
    them active.
    """
    batch, heads, n_queries, n_keys = shape
    model, n_graphs, active = as_arrays(factors), batch * heads, active_parts(factors)
    n_groups, size = factors.blocks.shape[1] // 2, factors.blocks.shape[2]
    n_entries = n_keys * n_groups * len(active) ** 2
    n_pairs, entry = n_groups * size**2, np.empty(n_graphs * n_entries + LANES, np.uint64)
    members = Members(np.empty((n_graphs, n_pairs + 1), np.int64), entry, np.empty((n_graphs, n_pairs)))
    total, width = np.empty((n_graphs, n_groups, size, size)), -(-size // LANES) * LANES
    sums = (torch.empty(total.size, width, dtype=torch.float32) for _ in range(2))  # aligned with lines of the cache
    reach = Reach(total, *map(as_arrays, sums))
    parts = equal_parts(n_graphs, 4 * n_entries + 8 * n_groups * size**3)
    in_parallel(read_graphs, parts, active, model, n_keys, members, reach)
    is_query, keys, n_real = real_tokens((batch, heads, n_queries, n_keys), query_mask, key_mask)
    is_key = np.ones((batch, n_keys), np.bool_) if key_mask is None else key_mask.contiguous().numpy()
    real = Real(is_query, is_key, keys, n_real)
    drawing = _DENSE, exploration, min(half_window, n_keys), seed, first_example
    return Source(active, model, members, reach, real, *drawing)


@kernel
def draw_pieces(start, stop, pieces, source, counts):
    """Draws the rows that are left of pieces start … stop, as many of each as there is room for."""
    row, end, found, out = pieces
    scratch = new_scratch(source)
    for piece in range(start, stop):
        has_room, count = True, 0
        while row[piece] < end[piece] and has_room:
            row[piece], more, has_room = draw_some(row[piece], end[piece], source, scratch, out[piece, count:], counts)
            count += more
        found[piece] = count


@kernel
def new_scratch(source):
    """Room for drawing some rows."""
    n_keys = source.real.is_key.shape[1]
    room = _POINTS + 3 * n_keys
    first, drawn = np.empty(_ROWS + 1, np.int64), np.empty(_ROWS, np.int64)
    points = Points(first, drawn, np.empty(room, np.int32), np.empty(room), np.empty(room, np.int32))
    proposed, bitmap = np.empty(n_keys, np.int32), np.zeros((n_keys + 63) // 64, np.uint64)
    return Scratch(points, proposed, bitmap, np.empty(n_keys + 4 * BATCH), np.empty((4, BATCH), np.uint32))


@kernel
def draw_some(start, stop, source, scratch, out, counts):
    """Draws the first few of rows start … stop, each step for all their points, so that look-ups overlap.

    Writes their keys one row after the other, and how many each row has. Returns which row is next, how many keys there
    are, and whether there was room for all; for those of one row there must be.
    """
    active, model, _, _, real, _, _, _, seed, first_example = source
    points, proposed, bitmap, coins, words = scratch
    n_queries, n_keys, heads = real.is_query.shape[1], real.is_key.shape[1], model.blocks.shape[0]
    next_row = scatter(start, stop, source, points)
    find_pairs(start, next_row, n_queries, active, model.query_part, source.reach, points)
    name_keys(start, next_row, n_queries, real, heads, source.members, points)
    end = 0
    for row in range(start, next_row):
        graph, query = row // n_queries, row % n_queries
        example, head = graph // heads, graph % heads
        first, drawn, last = points.first[row - start], points.drawn[row - start], points.first[row - start + 1]
        if last > drawn and points.place[drawn] == _ALL_KEYS:
            keys = real.keys[example, : real.n_keys[example]]
            toss(keys.size, Stream(seed, query, head, example + first_example), words, coins)
            count = _visit(keys, row, head, graph * n_keys, source, coins, proposed)
        else:
            count = sort_distinct(points.key[first:last], bitmap, proposed)
        if end + count > out.size:
            return row, end, False
        out[end : end + count] = proposed[:count]
        counts[row] = count
        end += count
    return next_row, end, True


@kernel
def scatter(start, stop, source, points):
    """Scatters Poisson points of rate 1 on the lines of some rows, after the certain keys of each.

    Returns the row after the last of these rows.

    A line has a piece for each pair of a query's parts of a group's two partitions, and one for exploration. A row that
    is drawn key by key gets one point, which says :data:`_ALL_KEYS`.
    """
    first, drawn, piece, place, certain = points
    active, model, _, reach, real, dense, exploration, half_window, seed, first_example = source
    part, weight, (heads, n_partitions, size, _) = model.query_part, model.query_weight, model.blocks.shape
    n_queries, n_active = real.is_query.shape[1], uint64(len(active))
    line = np.full(n_partitions // 2 * len(active) ** 2 + LANES, np.inf)
    gaps, words = np.empty(BATCH), np.empty((4, BATCH), np.uint32)
    count = 0
    for row in range(start, min(stop, start + _ROWS)):
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        query, n_keys = row % n_queries, real.is_key.shape[1]
        first[row - start] = drawn[row - start] = count
        if not real.is_query[example, query]:
            continue
        for key in range(max(query - half_window, 0), min(query + half_window + 1, n_keys)):
            if real.is_key[example, key]:
                certain[count], piece[count] = key, -1
                count += 1
        drawn[row - start] = begin = count
        end, last = 0.0, 0
        for g in range(n_partitions // 2):
            one, at = 2 * uint64(g) * n_active, 2 * g * size
            for s in range(one, one + n_active):
                for t in range(one + n_active, one + 2 * n_active):
                    a, d = uint64(part[row, s] - at), uint64(part[row, t] - at - size)
                    end += np.float64(weight[row, s]) * weight[row, t] * reach.total[graph, g, a, d]
                    line[last] = end  # lengths become ends
                    last += 1
        end += exploration * real.n_keys[example]
        line[last] = end
        if end >= dense * real.n_keys[example]:
            place[count], piece[count] = _ALL_KEYS, last
            count += 1
        else:
            point, block, half, most = 0.0, 0, 0, count + 2 * n_keys
            while point < end:
                if half == 0:
                    fill_words(words, seed, block, query, head + CANDIDATE, example + first_example)
                    block += BATCH
                to_exponentials(words, half, gaps)
                half = 1 - half
                for gap in gaps:
                    point += gap
                    if point >= end or count == most:
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
    first, drawn, piece, place, _ = points
    n_active, n_groups, size = uint64(len(active)), uint64(reach.total.shape[1]), uint64(reach.total.shape[2])
    n_pieces = n_active * n_active * n_groups
    for this in range(start, stop):
        row, graph = uint64(this), uint64(this // n_queries)
        for i in range(uint64(drawn[this - start]), uint64(first[this - start + 1])):
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
def name_keys(start, stop, n_queries, real, heads, members, points):
    """Writes the key that each point names: of its pair in proportion to memberships, or any real one."""
    first, drawn, pair, place, key = points
    n_points = first[stop - start]
    for row in range(start, stop):
        graph = uint64(row // n_queries)
        example = graph // uint64(heads)
        for i in range(uint64(drawn[row - start]), uint64(first[row - start + 1])):
            later = i + _AHEAD
            if later < n_points and pair[later] >= 0:
                prefetch(members.entry, _guess(graph, pair[later], place[later], members)[1])
            if pair[i] < 0:
                word = uint64(word_at(place[i], 1.0))
                key[i] = real.keys[example, word * uint64(real.n_keys[example]) >> HALF]
                continue
            begin, j, last_of_word = _guess(graph, pair[i], place[i], members)
            while j > begin and members.entry[j - uint64(1)] > last_of_word:
                j -= min(j - begin, uint64(LANES))
            key[i] = np.int32(members.entry[j + _first_above(members.entry, j, last_of_word)] & KEY)


@kernel
def _guess(graph, pair, place, members):
    """Where a pair's members begin, where to search for that of a point, and the last entry of its word."""
    word, v = uint64(word_at(place, 1.0)), uint64(pair)
    begin, end = uint64(members.first[graph, v]), uint64(members.first[graph, v + uint64(1)])
    guess = word * (end - begin) >> HALF  # were all in the pair alike
    return begin, begin + guess - min(guess, _BEFORE), word << HALF | KEY


@kernel
def _visit(keys, row, head, offset, source, coins, found):
    """Writes the keys that are certain or whose coin is below their probability; returns how many there are."""
    active, model, query = source.active, source.model, row % source.real.is_query.shape[1]
    part, weight, count = model.key_part, model.key_weight, 0
    rates = np.empty(model.blocks.shape[1] * model.blocks.shape[2], model.blocks.dtype)
    rates_of_row(row, head, active, model.query_part, model.query_weight, model.blocks, rates)
    for i in range(keys.size):
        rate = source.exploration + rate_of_key(rates, active, part, weight, offset + keys[i])
        found[count] = keys[i]
        count += coins[i] < -math.expm1(-rate) or abs(keys[i] - query) <= source.half_window
    return count
