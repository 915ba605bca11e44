"""Poisson points that name keys: where they fall, into which pair of parts of the keys, and onto which of its keys.

Each step is taken for all points of some rows of a graph before the next one. A step is then short, and the processor
looks up what many points need at once.
"""

from typing import NamedTuple

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.draws.candidates import CANDIDATE, WORD
from sbmt.kernels.cpu.draws.counts import count_points
from sbmt.kernels.cpu.draws.distinct import FEW
from sbmt.kernels.cpu.draws.members import BLOCK, HALF, KEY, LAST
from sbmt.kernels.cpu.philox import fill_columns
from sbmt.kernels.cpu.toolchain import inlined, kernel
from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.cpu.vectors.prefetch import prefetch
from sbmt.kernels.cpu.vectors.search import first_above

_BEFORE = np.uint64(LANES // 2)  # blocks that a search begins before the one that it guesses
_ROWS, _POINTS = 64, 1 << 12  # that are drawn at a time
_MORE = 64  # than two points per key: more never fall, where fewer than half a one per key is expected


class Lines(NamedTuple):
    """On which points are scattered, one for each of some rows; see :func:`sbmt.kernels.cpu.draws.crossed.source_of`.

    A line has a piece for each pair (a, d) of the query's parts of a group's two partitions, and one for exploration.
    """

    length: np.ndarray  # (rows,), 0 for padding, and infinite for a row that is drawn key by key
    sums: np.ndarray  # (pieces + 1 and more,), of the lengths of pieces of a row; infinite after the last
    end: np.ndarray  # uint32 (rows, as many), the same of each row in parts of its length, as Reach has them
    second: np.ndarray  # uint64 (rows, pieces), where line (a, d) of Reach.second begins
    first: np.ndarray  # uint64 (rows, pieces), where lines (a, …) of Reach.first begin
    pair: np.ndarray  # uint64 (rows, pieces), where the pairs of parts of the group begin among the members'


class Rain(NamedTuple):
    """Points of some rows as they fall: how many, and four random words each.

    Those of row i are ``first[i]`` … ``first[i + 1]``.
    """

    fallen: np.ndarray  # (rows,), how many on each
    first: np.ndarray  # (rows + 1,)
    block: np.ndarray  # uint32, of the stream of the query
    query: np.ndarray  # uint32
    word: np.ndarray  # uint32 (4, as many), see :func:`~sbmt.kernels.cpu.philox.fill_columns`


class Points(NamedTuple):
    """Points of some rows, and the keys that they name; keys of row i are ``first[i]`` … ``first[i + 1]``."""

    piece: np.ndarray  # uint64, of the lines of all rows
    drop: np.ndarray  # uint64, of the rain
    pair: np.ndarray  # uint64, of the parts of the key
    block: np.ndarray  # uint64, of members: where a search for it begins, then where it is
    to: np.ndarray  # uint64, where it goes
    first: np.ndarray  # (rows + 1,)
    key: np.ndarray  # int32


@kernel
def new_points(n_keys, n_groups, size, active):
    """Room for the lines, the rain and the points of some rows."""
    room, n_pieces, n_starts = _POINTS + 3 * n_keys + _MORE, n_groups * len(active) ** 2, _ROWS + 1
    pieces = np.empty((3, _ROWS, n_pieces), np.uint64)
    for piece in range(n_pieces):
        pieces[2, :, piece] = piece // len(active) ** 2 * (size**2 + 1)
    sums = np.full((n_pieces // LANES + 1) * LANES, np.inf)
    lines = Lines(np.empty(_ROWS), sums, np.empty((_ROWS, sums.size), np.uint32), pieces[0], pieces[1], pieces[2])
    address, word = np.empty((2, room), np.uint32), np.empty((4, room), np.uint32)
    rain = Rain(np.empty(_ROWS, np.int64), np.empty(n_starts, np.int64), address[0], address[1], word)
    of_points, first = np.empty((5, room), np.uint64), np.empty(n_starts, np.int64)
    key = np.empty(room + FEW, np.int32)
    points = Points(of_points[0], of_points[1], of_points[2], of_points[3], of_points[4], first, key)
    return lines, rain, points


@kernel
def scatter(start, stop, source, lines, rain, points):
    """Scatters points on the lines of the first few of rows start … stop of a graph, and has them name keys.

    Keys that are certain, being in the window, come before those of a row. Returns which row is next.
    """
    graph = start // source.real.is_query.shape[1]
    stop = _lay_out(start, stop, graph, source, lines)
    stop = _let_fall(start, stop, graph, source, lines, rain)
    stop, count = _land(start, stop, graph, source, lines, rain, points)
    _find_pairs(count, graph, source.members, source.reach, lines, rain, points)
    _find_blocks(count, graph, source.members, rain, points)
    _name_keys(count, source.members.entry, rain, points)
    return stop


@kernel
def _lay_out(start, stop, graph, source, lines):
    """Lays out the lines of some rows. Returns which row is next."""
    part, weight, sums = source.model.query_part, source.model.query_weight, lines.sums
    heads, n_partitions, size = source.model.blocks.shape[:3]
    n_active, example, total = uint64(len(source.active)), graph // heads, source.reach.total[graph]
    is_query, n_keys, of_part = source.real.is_query[example], source.real.n_keys[example], source.reach.first.shape[1]
    expected = 0.0
    for row in range(start, min(stop, start + _ROWS)):
        this, query, end, last = row - start, row % is_query.size, 0.0, uint64(0)
        for g in range(n_partitions // 2):
            one, at = 2 * uint64(g) * n_active, 2 * g * size
            for s in range(one, one + n_active):
                for t in range(one + n_active, one + 2 * n_active):
                    a, d = uint64(part[row, s] - at), uint64(part[row, t] - at - size)
                    end += np.float64(weight[row, s]) * weight[row, t] * total[g, a, d]
                    sums[last] = end
                    first = ((graph * total.shape[0] + g) * size + a) * size * of_part
                    lines.first[this, last], lines.second[this, last] = first, first + d * of_part
                    last += uint64(1)
        end += source.exploration * n_keys
        sums[last] = end
        scale = WORD / end if end > 0.0 else 1.0
        for i in range(sums.size):
            lines.end[this, i] = np.uint32(min(sums[i] * scale + 0.5, LAST))
        length = end if end < source.dense * n_keys else np.inf
        lines.length[this] = length if is_query[query] else 0.0
        expected += lines.length[this] if length < np.inf else 0.0
        if expected > _POINTS:
            return row + 1
    return min(stop, start + _ROWS)


@kernel
def _let_fall(start, stop, graph, source, lines, rain):
    """Has points fall on the lines of some rows. Returns which row is next."""
    heads, n_queries = source.model.blocks.shape[0], source.real.is_query.shape[1]
    head, example, first_query = graph % heads, graph // heads + source.first_example, start - graph * n_queries
    count_points(lines.length[: stop - start], rain.fallen, source.seed, first_query, head, example)
    most, end, rain.first[0] = 2 * source.real.is_key.shape[1] + _MORE, 0, 0
    for i in range(uint64(stop - start)):
        begin, end = uint64(end), uint64(end + min(rain.fallen[i], most))
        rain.first[i + uint64(1)] = end
        for drop in range(begin, end):
            rain.block[drop], rain.query[drop] = drop - begin, uint64(first_query) + i
        if end > _POINTS:
            stop = start + int(i) + 1
            break
    fill_columns(rain.word, 0, end, source.seed, rain.block, rain.query, head + CANDIDATE, example)
    return stop


@kernel
def _land(start, stop, graph, source, lines, rain, points):
    """Finds the piece on which each point lands, and writes the keys that no part names: those of the window, and any.

    Returns which row is next, and how many points are left to be named.
    """
    real, example, half_window = source.real, graph // source.model.blocks.shape[0], source.half_window
    is_query, is_key, keys = real.is_query[example], real.is_key[example], real.keys[example, : real.n_keys[example]]
    n_pieces, width = uint64(lines.first.shape[1]), uint64(lines.end.shape[1])
    count, end = uint64(0), uint64(0)
    for row in range(start, stop):
        this, query = uint64(row - start), row % is_query.size
        points.first[this] = end
        if half_window >= 0 and is_query[query]:
            for key in range(max(query - half_window, 0), min(query + half_window + 1, is_key.size)):
                points.key[end] = key
                end += uint64(is_key[key])
        for i in range(uint64(rain.first[this]), uint64(rain.first[this + uint64(1)])):
            at = _first_above(lines.end, this * width, rain.word[0, i])
            if at == n_pieces:
                points.key[end] = keys[uint64(rain.word[3, i]) * uint64(keys.size) >> HALF]
            else:
                points.piece[count], points.drop[count], points.to[count] = this * n_pieces + at, i, end
                count += uint64(1)
            end += uint64(1)
        if end > _POINTS:
            points.first[this + uint64(1)] = end
            return row + 1, count
    points.first[stop - start] = end
    return stop, count


@kernel
def _find_pairs(count, graph, members, reach, lines, rain, points):
    """Finds the pair (b, c) of parts that each point names, and guesses in which block of its members the key is."""
    size, width, begins = uint64(reach.total.shape[2]), uint64(reach.first.shape[1]), members.first[graph].reshape(-1)
    n = lines.pair.size
    second, first, pair = lines.second.reshape(n), lines.first.reshape(n), lines.pair.reshape(n)
    for i in range(count):
        points.pair[i] = _first_above(reach.second, second[points.piece[i]], rain.word[1, points.drop[i]])
    for i in range(count):
        c, piece, drop = points.pair[i], points.piece[i], points.drop[i]
        b = _first_above(reach.first, first[piece] + c * width, rain.word[2, drop])
        v = pair[piece] + c * size + b
        begin, end = uint64(begins[v]), uint64(begins[v + uint64(1)])
        guess = uint64(rain.word[3, drop]) * (end - begin) >> HALF  # were all in the pair alike
        points.pair[i], points.block[i] = v, begin + guess - min(guess, _BEFORE)


@kernel
def _find_blocks(count, graph, members, rain, points):
    """Finds the block of each point's key, and asks for it."""
    begins, last = members.first[graph].reshape(-1), members.last
    for i in range(count):
        j, word, begin = points.block[i], rain.word[3, points.drop[i]], uint64(begins[points.pair[i]])
        found = first_above(last, j, word)
        if (found == uint64(0)) & (j > begin) | (found == uint64(LANES)):  # the guess may have been wrong
            while j > begin and last[j - uint64(1)] > word:
                j -= min(j - begin, uint64(LANES))
            found = _first_above(last, j, word)
        points.block[i] = j + found
        prefetch(members.entry, points.block[i] * uint64(BLOCK))


@kernel
def _name_keys(count, entry, rain, points):
    """Writes the key that each point names, of its pair in proportion to memberships."""
    for i in range(count):
        begin, word = points.block[i] * uint64(BLOCK), uint64(rain.word[3, points.drop[i]])
        found = first_above(entry, begin, word << HALF | KEY)
        points.key[points.to[i]] = np.int32(entry[begin + found] & KEY)


@inlined
def _first_above(ascending, start, x):
    """How many numbers from a place on come before the first that is above ``x``, which there must be."""
    found = at = first_above(ascending, start, x)
    while at == LANES:
        at = first_above(ascending, start + found, x)
        found += at
    return found
