"""Drawing edges where clusters are pairs of parts: from the row to a pair, from there to a key."""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.crossed import rate_of_key, rates_of_row
from sbmt.kernels.cpu.draws.bounds import all_real, real_tokens
from sbmt.kernels.cpu.draws.candidates import Stream
from sbmt.kernels.cpu.draws.distinct import new_bitmap, sort_distinct
from sbmt.kernels.cpu.draws.members import BLOCK, Members, Reach, blocks_of_group, read_groups
from sbmt.kernels.cpu.draws.pieces import draw_in_pieces, join
from sbmt.kernels.cpu.draws.points import Lines, Points, Rain, new_points, scatter
from sbmt.kernels.cpu.draws.rows import toss
from sbmt.kernels.cpu.launch import active_parts
from sbmt.kernels.cpu.philox import BATCH
from sbmt.kernels.cpu.threads.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import borrowing, kernel
from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.structures import CrossedFactors, as_arrays

_DENSE = 0.5
WORK = 512  # multiplications that drawing a row takes as long as, roughly


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

    lines: Lines
    rain: Rain
    points: Points
    bitmap: np.ndarray
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
    n_pairs, n_entries = size**2, n_keys * len(active) ** 2  # of a group
    n_blocks = n_graphs * n_groups * blocks_of_group(n_keys, n_pairs, active)
    entry = torch.empty(n_blocks * BLOCK, dtype=torch.uint64).numpy()  # aligned with lines of the cache
    first = np.empty((n_graphs, n_groups, n_pairs + 1), np.int64)
    members = Members(first, entry, np.empty(n_blocks + LANES, np.uint32), np.empty((n_graphs, n_groups, n_pairs)))
    total, width = np.empty((n_graphs, n_groups, size, size)), -(-size // LANES) * LANES
    sums = (torch.empty(total.size, width, dtype=torch.uint32) for _ in range(2))  # aligned with lines of the cache
    reach = Reach(total, *map(as_arrays, sums))
    is_query, keys, n_real = real_tokens((batch, heads, n_queries, n_keys), query_mask, key_mask)
    is_key = all_real(batch, n_keys) if key_mask is None else key_mask.contiguous().numpy()
    real = Real(is_query, is_key, keys, n_real)
    drawing = _DENSE, exploration, min(half_window, n_keys), seed, first_example
    parts = equal_parts(n_graphs * n_groups, 4 * n_entries + 8 * size**3)
    in_parallel(read_groups, parts, active, model, n_keys, members, reach)
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
    n_keys, (_, n_partitions, size, _) = source.real.is_key.shape[1], source.model.blocks.shape
    lines, rain, points = new_points(n_keys, n_partitions // 2, size, source.active)
    coins, words = np.empty(n_keys + 4 * BATCH), np.empty((4, BATCH), np.uint32)
    return Scratch(lines, rain, points, new_bitmap(n_keys), coins, words)


@borrowing
def draw_some(start, stop, source, scratch, out, counts):
    """Draws the first few of rows start … stop, all of one graph.

    Writes their keys one row after the other, and how many each row has. Returns which row is next, how many keys there
    are, and whether there was room for all; for those of one row there must be.
    """
    lines, rain, points, bitmap, coins, words = scratch
    real, n_queries, heads = source.real, source.real.is_query.shape[1], source.model.blocks.shape[0]
    graph, end = start // n_queries, 0
    example, head = graph // heads, graph % heads
    next_row = scatter(start, min(stop, (graph + 1) * n_queries), source, lines, rain, points)
    for row in range(start, next_row):
        this, query = row - start, row - graph * n_queries
        first, last = points.first[this], points.first[this + 1]
        keys, is_tossed = real.keys[example, : real.n_keys[example]], lines.length[this] == np.inf
        if end + (keys.size if is_tossed else min(last - first, keys.size)) > out.size:
            return row, end, False
        if is_tossed:
            toss(keys.size, Stream(source.seed, query, head, example + source.first_example), words, coins)
            count = _visit(keys, row, head, graph * real.is_key.shape[1], source, coins, out[end:])
        else:
            count = sort_distinct(points.key, first, last, bitmap, out[end:])
        counts[row] = count
        end += count
    return next_row, end, True


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
