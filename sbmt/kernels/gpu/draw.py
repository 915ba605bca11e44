"""Draws edges from memberships in crossed partitions, with one program per row and without storing the edges.

A row has three kinds of keys: those in its window, which are certain; those visited one by one, if the row expects many
edges or they are in a causal row's own chunk; and those on which points of a Poisson process land, where only the first
point on each key counts. Tiles of keys are drawn again wherever they are needed, from random numbers that depend only
on their address (:mod:`sbmt.counter_rng`), so no edge is ever stored, and the host never waits for the device.

The plain twin draws points with numpy in :file:`tests/kernels/test_gpu.py`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.gpu.clusters import CHUNK, list_members
from sbmt.kernels.gpu.tokens import are_real, strided_mask

CELL = tl.constexpr(Purpose.CELL * MAX_HEADS)
COUNT = tl.constexpr(Purpose.COUNT * MAX_HEADS)
CANDIDATE = tl.constexpr(Purpose.CANDIDATE * MAX_HEADS)
KEEP = tl.constexpr(Purpose.KEEP * MAX_HEADS)
DENSE_SHARE = tl.constexpr(0.125)  # a row that expects more points than this share of its keys is drawn key by key
TILE = 16  # keys at a time


class Draw(NamedTuple):
    """The inputs from which edges are drawn: tensors in Python, pointers in a kernel."""

    rates: Any  # (graphs, n_queries, parts), each query's rates to all parts
    part: Any  # parts of keys, int16 (graphs, n_keys, 4 · groups)
    weight: Any  # memberships of keys in them
    members: Any  # the same by cluster
    query_mask: Any  # as :func:`sbmt.kernels.gpu.tokens.strided_mask` returns it
    key_mask: Any
    seed: Any  # int64 ()
    first_example: Any  # the number of the batch's first example
    extra: Any  # δ ≥ 0, added to the rate of each pair of real tokens
    reach: Any  # real keys at most this many positions from a row are certain; none if negative
    offset: Any  # how many keys come before the first query's own in causal masks, else 0
    n_queries: Any  # rows of a graph
    n_keys: Any
    n_heads: Any  # graphs of an example


class Row(NamedTuple):
    """The row that a program processes: its index, the components of that index, and the limits of its window."""

    at: Any  # among all rows
    graph: Any
    example: Any
    head: Any
    query: Any
    low: Any  # the window's first and last key
    high: Any
    n_listed: Any  # keys that the row draws by cluster
    cell_low: Any  # keys from here on, and before `cell_high`, are visited one by one
    cell_high: Any
    is_real: Any
    n_real: Any  # keys that points may land on
    n_drawn: Any  # points that are drawn by rates
    n_points: Any  # points in all, including those that may land on any key
    n_near: Any  # tiles of the window
    first_point: Any  # the first tile after those of keys that are visited one by one
    n_tiles: Any
    table: Any  # where the row's clusters start in the members' tables
    ends: Any  # running sums of the rates through each first part
    total: Any  # the rate to all clusters


class Sizes(NamedTuple):
    """The constants for which kernels are compiled."""

    size: int
    n_groups: int
    rows: int  # parts of the first partitions of all groups, as a power of two
    columns: int  # parts of a second partition, as a power of two
    steps: int  # steps of a search among all keys
    chunk: int
    causal: bool
    has_query_mask: bool
    has_key_mask: bool


@triton.jit
def uniform(word):
    """Converts a random word to a number in (0, 1), float32."""
    return tl.minimum((word.to(tl.float32) + 0.5) / 4294967296.0, 0.99999994)


@triton.jit
def random_words(draw, example, head, query, purpose, block):
    """Returns the words of :func:`sbmt.counter_rng.random_blocks`."""
    here = block * 0  # so that all words of the counter have the same shape
    example = (example + draw.first_example).to(tl.uint32) + here.to(tl.uint32)
    query, head = query + here, (head + purpose).to(tl.int32) + here
    return tl.philox(tl.load(draw.seed), block.to(tl.uint32), query.to(tl.uint32), head.to(tl.uint32), example)


@triton.jit
def draw_number(mean, draw, example, head, query, half: tl.constexpr):
    """Draws a Poisson number by inversion, from as many uniform numbers as its mean requires."""
    left, number, block = mean.to(tl.float64), 0, 0
    while left > 0:
        some = tl.minimum(left, 500.0)
        w0, w1, w2, w3 = random_words(draw, example, head, query, COUNT, tl.to_tensor(block))
        upper, lower = (w0, w1) if half == 0 else (w2, w3)
        u = (upper.to(tl.float64) * 4294967296.0 + lower.to(tl.float64) + 0.5) / 18446744073709551616.0
        term = tl.exp(-some)
        below, k = term, 1
        while (below < u) & (term > 0):
            term = term * some / k
            below += term
            number += 1
            k += 1
        left -= 500.0
        block += 1
    return number


@triton.jit
def _rates_by_part(draw, at, table, s: tl.constexpr):
    """Returns a row's rates to the first parts of all groups, summed over second parts: ``[rows]``, 0 past the last."""
    ga, b = tl.arange(0, s.rows), tl.arange(0, s.columns)[None, :]
    live = ga < s.n_groups * s.size
    group = ga // s.size
    of_row = draw.rates + at * (2 * s.n_groups * s.size)
    first = tl.load(of_row + 2 * group * s.size + ga % s.size, live, 0.0)
    inside = live[:, None] & (b < s.size)
    second = tl.load(of_row + ((2 * group + 1) * s.size)[:, None] + b, inside, 0.0)
    mass = tl.load(draw.members.mass + table + (ga * s.size)[:, None] + b, inside, 0.0)
    return first * tl.sum(second * mass, 1)


@triton.jit
def enter_row(draw, s: tl.constexpr, TILE: tl.constexpr):
    """Returns the :class:`Row` that the program processes."""
    at = tl.program_id(0).to(tl.int64)
    graph, query = at // draw.n_queries, (at % draw.n_queries).to(tl.int32)
    example, head = graph // draw.n_heads, graph % draw.n_heads
    place = query + draw.offset
    n_chunks = tl.cdiv(draw.n_keys, s.chunk)
    chunk, cell_high = n_chunks, draw.n_keys
    if s.causal:
        chunk, cell_high = place // s.chunk, place + 1
    low, high = 0, -1
    if draw.reach >= 0:
        low, high = tl.maximum(place - draw.reach, 0), tl.minimum(place + draw.reach, draw.n_keys - 1)
        if s.causal:
            high = place
    n_listed = tl.minimum(chunk * s.chunk, draw.n_keys)
    is_real = are_real(draw.query_mask, example, query, query >= 0, s.has_query_mask)
    n_clusters = s.n_groups * s.size * s.size
    table = (graph * (n_chunks + 1) + chunk) * (n_clusters + 1)
    n_real = tl.load(draw.members.n_before + table + n_clusters).to(tl.int32)
    by_part = _rates_by_part(draw, at, table, s)
    total = tl.sum(by_part, 0)
    spread = draw.extra * n_real
    n_drawn, n_spread, cell_low = 0, 0, n_listed
    if total + spread > n_real * DENSE_SHARE:
        cell_low = 0
    else:
        n_drawn = draw_number(total, draw, example, head, query, 0)
        n_spread = draw_number(spread, draw, example, head, query, 1)
    n_near = tl.cdiv(tl.maximum(high - low + 1, 0), TILE)
    first_point, n_points = n_near + tl.cdiv(cell_high - cell_low, TILE), n_drawn + n_spread
    n_tiles = first_point + tl.cdiv(n_points, TILE)
    if not is_real:
        n_tiles = 0
    keys = low, high, n_listed, cell_low, cell_high, is_real, n_real, n_drawn, n_points
    tiles = n_near, first_point, n_tiles
    return Row(at, graph, example, head, query, *keys, *tiles, table, tl.cumsum(by_part, 0), total)


@triton.jit
def first_above(values, stride, x, low, high, STEPS: tl.constexpr):
    """Returns the place of the first value above x among ascending values at ``low`` … ``high`` − 1, or ``high``."""
    for _ in range(STEPS):
        middle = (low + high) // 2
        is_open = low < high
        is_later = is_open & (tl.load(values + middle * stride, is_open, 0) <= x)
        high = tl.where(is_open & ~is_later, middle, high)
        low = tl.where(is_later, middle + 1, low)
    return low


@triton.jit
def _points(draw, row, t, s: tl.constexpr):
    """Returns the keys on which points t land, by choosing a first part, then a second part, then a key in both."""
    w0, w1, w2, w3 = random_words(draw, row.example, row.head, row.query, CANDIDATE, t)
    ga = tl.sum((row.ends[None, :] <= (uniform(w0) * row.total)[:, None]).to(tl.int32), 1)
    ga = tl.minimum(ga, s.n_groups * s.size - 1)
    b = tl.arange(0, s.columns)[None, :]
    cluster = row.table + ga * s.size
    mass = tl.load(draw.members.mass + cluster[:, None] + b, b < s.size, 0.0)
    second = row.at * (2 * s.n_groups * s.size) + (2 * (ga // s.size) + 1) * s.size
    shares = tl.cumsum(tl.load(draw.rates + second[:, None] + b, b < s.size, 0.0) * mass, 1)
    place = uniform(w1) * tl.max(shares, 1)
    b = tl.minimum(tl.sum((shares <= place[:, None]).to(tl.int32), 1), s.size - 1)
    start = tl.load(draw.members.starts + row.graph * (s.n_groups * s.size * s.size) + ga * s.size + b)
    number = tl.load(draw.members.n_before + cluster + b).to(tl.int32)
    place = uniform(w2) * tl.load(draw.members.mass + cluster + b)
    first = row.graph * (4 * s.n_groups) * draw.n_keys
    slot = first_above(draw.members.until + first, 1, place, start, start + number, s.steps)
    is_drawn = t < row.n_drawn
    is_valid = is_drawn & (number > 0)  # rounding alone leads to a cluster without keys
    keys = tl.load(draw.members.keys + first + tl.minimum(slot, start + number - 1), is_valid, 0)
    if draw.extra > 0:
        anywhere = tl.minimum((uniform(w3) * row.n_real).to(tl.int32), row.n_real - 1)
        if s.has_key_mask:
            none = t * 0
            n_real = draw.members.n_real + row.graph * draw.n_keys
            anywhere = first_above(n_real, 1, anywhere, none, none + draw.n_keys, s.steps)
        is_spread = ~is_drawn & (t < row.n_points)
        keys = tl.where(is_spread, anywhere, keys)
        is_valid |= is_spread
    return keys, is_valid


@triton.jit
def part_rate(draw, rates, entry):
    """Returns a row's rate to keys in one partition, from the keys' two parts, at ``entry`` and the next entry."""
    rate = tl.load(rates + tl.load(draw.part + entry)) * tl.load(draw.weight + entry)
    return rate + tl.load(rates + tl.load(draw.part + entry + 1)) * tl.load(draw.weight + entry + 1)


@triton.jit
def visit_tile(draw, row, q, s: tl.constexpr, TILE: tl.constexpr):
    """Returns the keys of tile q, which of them are edges, their rates, and the probabilities of drawing them.

    It also returns which keys are in a causal row's own chunk, since the total does not include their rates.
    """
    lane = tl.arange(0, TILE)
    if q < row.n_near:
        keys = row.low + q * TILE + lane
        is_edge = keys <= row.high
    elif q < row.first_point:
        keys = row.cell_low + (q - row.n_near) * TILE + lane
        is_edge = keys < row.cell_high
    else:
        keys, is_edge = _points(draw, row, (q - row.first_point) * TILE + lane, s)
        is_earlier = lane[None, :] < lane[:, None]
        is_repeated = tl.max(((keys[:, None] == keys[None, :]) & is_edge[None, :] & is_earlier).to(tl.int32), 1)
        for before in range(0, q - row.first_point):
            others, are_edges = _points(draw, row, before * TILE + lane, s)
            is_same = (keys[:, None] == others[None, :]) & are_edges[None, :]
            is_repeated = tl.maximum(is_repeated, tl.max(is_same.to(tl.int32), 1))
        is_edge = is_edge & (is_repeated == 0)
    is_own = is_edge & (keys >= row.n_listed) & (q >= row.n_near) & (q < row.first_point)
    keys = tl.where(is_edge, keys, 0)
    is_edge = are_real(draw.key_mask, row.example, keys, is_edge, s.has_key_mask)
    is_near = (keys >= row.low) & (keys <= row.high)
    at = (row.graph * draw.n_keys + keys) * (4 * s.n_groups)
    rates = draw.rates + row.at * (2 * s.n_groups * s.size)
    rate = tl.zeros([TILE], draw.weight.dtype.element_ty)
    for g in tl.static_range(tl.constexpr(s.n_groups)):
        rate += part_rate(draw, rates, at + 4 * g) * part_rate(draw, rates, at + 4 * g + 2)
    drawn_with = edge_probability(rate + draw.extra)
    if q < row.n_near:
        drawn_with = rate * 0 + 1
    else:
        is_edge = is_edge & ~is_near & (drawn_with > 0)
        if q < row.first_point:
            w0, w1, w2, w3 = random_words(draw, row.example, row.head, row.query, CELL, keys // 4)
            even, odd = tl.where(keys % 4 == 0, w0, w2), tl.where(keys % 4 == 1, w1, w3)
            is_edge = is_edge & (uniform(tl.where(keys % 2 == 0, even, odd)) < drawn_with)
    return keys, is_edge, rate, drawn_with, is_own


@triton.jit
def edge_probability(rate):
    """Computes 1 − exp(−rate), by a series where the difference would lose digits."""
    few = rate * (1 - rate / 2 * (1 - rate / 3 * (1 - rate / 4 * (1 - rate / 5))))
    return tl.where(rate < 0.01, few, 1 - tl.exp(-rate))


@triton.jit
def _list_kernel(draw, degrees, row_ptr, out, s: tl.constexpr, FILL: tl.constexpr, TILE: tl.constexpr):
    row = enter_row(draw, s, TILE)
    number = 0
    for q in range(row.n_tiles):
        keys, is_edge, _, _, _ = visit_tile(draw, row, q, s, TILE)
        found = is_edge.to(tl.int32)
        if FILL:
            to = tl.load(row_ptr + row.at) + number + tl.cumsum(found, 0) - 1
            tl.store(out + to, row.graph * 0 + (row.at * draw.n_keys + keys), is_edge)
        number += tl.sum(found, 0)
    if not FILL:
        tl.store(degrees + row.at, number)


def prepare(
    rates: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, masks: tuple[Tensor | None, Tensor | None, bool],
    seed: Tensor, first_example: int, extra: float, reach: int,
) -> tuple[Draw, Sizes]:  # fmt: skip
    """Prepares the kernels' inputs from a model's rates to parts, its keys' parts and memberships, and its masks."""
    heads, n_queries = rates.shape[1:3]
    n_keys, n_groups, size = part.shape[2], part.shape[3] // 4, blocks.shape[2]
    query_mask, key_mask, causal = masks
    rates, part, weight = (x.detach().contiguous() for x in (rates, part, weight))
    offset = n_keys - n_queries if causal else 0
    drawn_from = rates, part, weight, list_members(part, weight, size, key_mask)
    rest = strided_mask(query_mask, part), strided_mask(key_mask, part), seed, first_example, float(extra), reach
    rows, columns = triton.next_power_of_2(n_groups * size), triton.next_power_of_2(size)
    steps, has_masks = (4 * n_keys).bit_length(), (query_mask is not None, key_mask is not None)
    inputs = Draw(*drawn_from, *rest, offset, n_queries, n_keys, heads)
    return inputs, Sizes(size, n_groups, rows, columns, steps, CHUNK, causal, *has_masks)


def list_edges(draw: Draw, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Returns ``row_ptr`` and ``keys`` of the edges that are attended; the host waits for their number."""
    n_rows = draw.rates.shape[0] * draw.rates.shape[1] * draw.n_queries
    degrees = draw.part.new_empty(n_rows, dtype=torch.int32)
    _list_kernel[(n_rows,)](draw, degrees, degrees, degrees, sizes, False, TILE, num_warps=1)
    row_ptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
    cells = row_ptr.new_empty(int(row_ptr[-1]))
    _list_kernel[(n_rows,)](draw, degrees, row_ptr, cells, sizes, True, TILE, num_warps=1)
    return row_ptr, cells.sort().values % draw.n_keys
