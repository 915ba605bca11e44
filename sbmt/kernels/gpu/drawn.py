"""Attention along edges that are drawn on the way, from memberships in crossed partitions: one program for each row.

A row's edges are the keys of its window, which are certain; keys that are visited one by one, where a row expects many
of them or they are in a causal row's own chunk; and the keys that points of a Poisson process land on, of which only
the first on each key counts. Tiles of such keys are drawn again wherever they are needed, from random numbers with an
address of their own (:mod:`sbmt.counter_rng`), so no edge is ever written, and nothing is asked of the device.

The plain twin of the draw is :class:`sbmt.BlockModel` with the Bernoulli sampler, in law; that of the attention is
:func:`sbmt.attention.dense.attend_dense` along the edges of :func:`list_edges`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.gpu.clusters import CHUNK, Members, list_members

CELL = tl.constexpr(Purpose.CELL * MAX_HEADS)
COUNT = tl.constexpr(Purpose.COUNT * MAX_HEADS)
CANDIDATE = tl.constexpr(Purpose.CANDIDATE * MAX_HEADS)
DENSE_SHARE = tl.constexpr(0.125)  # a row that expects more points than this share of its keys goes key by key
TILE = 16  # keys at a time


class Draw(NamedTuple):
    """What edges are drawn from: tensors in Python, pointers in a kernel.

    Attributes:
        rates: ``(graphs, n_queries, parts)``, each query's rates to all parts.
        part: Parts of keys, int16 ``(graphs, n_keys, 4 · groups)``.
        weight: How much keys are in them.
        members: The same by cluster.
        query_mask: bool ``(batch, n_queries)``; anything, unless masks are used.
        key_mask: bool ``(batch, n_keys)``.
        n_real: int32 ``(batch, n_keys)``, real keys up to each.
        seed: int64 ``()``.
        first_example: The number of the first example.
        extra: δ ≥ 0, added to the rate of each pair of real tokens.
        reach: All real keys at most so many places from a row are certain; none if negative.
        offset: How many keys come before the first query's own in causal masks, else 0.
        n_queries: Rows of a graph.
        n_keys: Keys of a graph.
        n_heads: Graphs of an example.
    """

    rates: Any
    part: Any
    weight: Any
    members: Any
    query_mask: Any
    key_mask: Any
    n_real: Any
    seed: Any
    first_example: Any
    extra: Any
    reach: Any
    offset: Any
    n_queries: Any
    n_keys: Any
    n_heads: Any


class Row(NamedTuple):
    """Where a program is, and what its row consists of."""

    at: Any  # among all rows
    graph: Any
    example: Any
    head: Any
    query: Any
    low: Any  # the window's first and last key
    high: Any
    cell_low: Any  # keys from here on, and before `cell_high`, are visited one by one
    cell_high: Any
    n_real: Any  # keys that points may land on
    n_drawn: Any  # points that land by rates
    n_points: Any  # and those that land on any key
    n_near_tiles: Any
    n_cell_tiles: Any
    n_tiles: Any
    table: Any  # where the row's clusters start in the members' tables
    total: Any  # the rate to all clusters


class Sizes(NamedTuple):
    """What kernels are compiled for."""

    size: int
    n_groups: int
    rows: int  # parts of the first partitions of all groups, as a power of two
    columns: int  # parts of a second one
    steps: int  # of a search among all keys
    chunk: int
    causal: bool
    masked: bool


@triton.jit
def _uniform(word):
    return tl.minimum((word.to(tl.float32) + 0.5) / 4294967296.0, 0.99999994)


@triton.jit
def _words(draw, row, purpose, block):
    here = block * 0  # so that all words of the counter have one shape
    example = (row.example + draw.first_example).to(tl.uint32) + here.to(tl.uint32)
    query, head = row.query + here, (row.head + purpose).to(tl.int32) + here
    return tl.philox(tl.load(draw.seed), block.to(tl.uint32), query.to(tl.uint32), head.to(tl.uint32), example)


@triton.jit
def _poisson(mean, draw, row, half: tl.constexpr):
    """A Poisson number by inversion, from as many uniforms as its mean needs."""
    left, number, block = mean.to(tl.float64), 0, 0
    while left > 0:
        some = tl.minimum(left, 500.0)
        w0, w1, w2, w3 = _words(draw, row, COUNT, tl.to_tensor(block))
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
def _rates_by_part(draw, row, s: tl.constexpr):
    """The row's rates to the first parts of all groups through whatever second part: ``[rows]``, 0 beyond the last."""
    ga, b = tl.arange(0, s.rows), tl.arange(0, s.columns)[None, :]
    live = ga < s.n_groups * s.size
    group = ga // s.size
    of_row = draw.rates + row.at * (2 * s.n_groups * s.size)
    first = tl.load(of_row + 2 * group * s.size + ga % s.size, live, 0.0)
    inside = live[:, None] & (b < s.size)
    second = tl.load(of_row + ((2 * group + 1) * s.size)[:, None] + b, inside, 0.0)
    mass = tl.load(draw.members.mass + row.table + (ga * s.size)[:, None] + b, inside, 0.0)
    return first * tl.sum(second * mass, 1)


@triton.jit
def _enter(draw, s: tl.constexpr, TILE: tl.constexpr):
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
    n_real = n_listed
    is_real = True
    if s.masked:
        n_real = tl.load(draw.n_real + example * draw.n_keys + n_listed - 1, n_listed > 0, 0)
        is_real = tl.load(draw.query_mask + example * draw.n_queries + query)
    table = (graph * (n_chunks + 1) + chunk) * (s.n_groups * s.size * s.size)
    row = Row(at, graph, example, head, query, low, high, n_listed, cell_high, n_real, 0, 0, 0, 0, 0, table, 0.0)
    total = tl.sum(_rates_by_part(draw, row, s), 0)
    spread = draw.extra * n_real
    n_drawn, n_spread, cell_low = 0, 0, n_listed
    if total + spread > n_real * DENSE_SHARE:
        cell_low = 0
    else:
        n_drawn, n_spread = _poisson(total, draw, row, 0), _poisson(spread, draw, row, 1)
    n_near = tl.cdiv(tl.maximum(high - low + 1, 0), TILE)
    n_cells = tl.cdiv(cell_high - cell_low, TILE)
    n_points = n_drawn + n_spread
    n_tiles = n_near + n_cells + tl.cdiv(n_points, TILE)
    if not is_real:
        n_tiles = 0
    return Row(
        at, graph, example, head, query, low, high, cell_low, cell_high, n_real, n_drawn, n_points, n_near, n_cells,
        n_tiles, table, total,
    )  # fmt: skip


@triton.jit
def _first_above(values, x, low, high, STEPS: tl.constexpr):
    """Of ascending values at ``low`` … ``high`` − 1, the place of the first above x; ``high`` if there is none."""
    for _ in range(STEPS):
        middle = (low + high) // 2
        is_open = low < high
        is_later = is_open & (tl.load(values + middle, is_open, 0) <= x)
        high = tl.where(is_open & ~is_later, middle, high)
        low = tl.where(is_later, middle + 1, low)
    return low


@triton.jit
def _points(draw, row, t, ends, s: tl.constexpr):
    """The keys that points t land on: a first part, with it a second one, and then a key in both."""
    w0, w1, w2, w3 = _words(draw, row, CANDIDATE, t)
    ga = tl.sum((ends[None, :] <= (_uniform(w0) * row.total)[:, None]).to(tl.int32), 1)
    ga = tl.minimum(ga, s.n_groups * s.size - 1)
    b = tl.arange(0, s.columns)[None, :]
    cluster = row.table + ga * s.size
    mass = tl.load(draw.members.mass + cluster[:, None] + b, b < s.size, 0.0)
    second = row.at * (2 * s.n_groups * s.size) + (2 * (ga // s.size) + 1) * s.size
    shares = tl.cumsum(tl.load(draw.rates + second[:, None] + b, b < s.size, 0.0) * mass, 1)
    place = _uniform(w1) * tl.max(shares, 1)
    b = tl.minimum(tl.sum((shares <= place[:, None]).to(tl.int32), 1), s.size - 1)
    start = tl.load(draw.members.starts + row.graph * (s.n_groups * s.size * s.size) + ga * s.size + b)
    number = tl.load(draw.members.n_before + cluster + b)
    place = _uniform(w2) * tl.load(draw.members.mass + cluster + b)
    first = row.graph * (4 * s.n_groups) * draw.n_keys
    slot = _first_above(draw.members.until + first, place, start, start + number, s.steps)
    is_drawn = t < row.n_drawn
    is_valid = is_drawn & (number > 0)  # rounding alone leads to a cluster without keys
    keys = tl.load(draw.members.keys + first + tl.minimum(slot, start + number - 1), is_valid, 0)
    if draw.extra > 0:
        anywhere = tl.minimum((_uniform(w3) * row.n_real).to(tl.int32), row.n_real - 1)
        if s.masked:
            none = t * 0
            n_real = draw.n_real + row.example * draw.n_keys
            anywhere = _first_above(n_real, anywhere, none, none + draw.n_keys, s.steps)
        is_spread = ~is_drawn & (t < row.n_points)
        keys = tl.where(is_spread, anywhere, keys)
        is_valid |= is_spread
    return keys, is_valid


@triton.jit
def _tile(draw, row, ends, q, s: tl.constexpr, TILE: tl.constexpr):
    """Keys of tile q, which of them are edges, their rates, and with what probability they are drawn."""
    lane = tl.arange(0, TILE)
    first_point = row.n_near_tiles + row.n_cell_tiles
    if q < row.n_near_tiles:
        keys = row.low + q * TILE + lane
        is_edge = keys <= row.high
    elif q < first_point:
        keys = row.cell_low + (q - row.n_near_tiles) * TILE + lane
        is_edge = keys < row.cell_high
    else:
        keys, is_edge = _points(draw, row, (q - first_point) * TILE + lane, ends, s)
        is_earlier = lane[None, :] < lane[:, None]
        is_repeated = tl.max(((keys[:, None] == keys[None, :]) & is_edge[None, :] & is_earlier).to(tl.int32), 1)
        for before in range(0, q - first_point):
            others, are_edges = _points(draw, row, before * TILE + lane, ends, s)
            is_same = (keys[:, None] == others[None, :]) & are_edges[None, :]
            is_repeated = tl.maximum(is_repeated, tl.max(is_same.to(tl.int32), 1))
        is_edge = is_edge & (is_repeated == 0)
    keys = tl.where(is_edge, keys, 0)
    if s.masked:
        is_edge = is_edge & (tl.load(draw.key_mask + row.example * draw.n_keys + keys) != 0)
    is_near = (keys >= row.low) & (keys <= row.high)
    at = (row.graph * draw.n_keys + keys) * (4 * s.n_groups)
    rates = draw.rates + row.at * (2 * s.n_groups * s.size)
    rate = tl.zeros([TILE], draw.weight.dtype.element_ty)
    for g in tl.static_range(tl.constexpr(s.n_groups)):
        x, y = rate * 0, rate * 0
        for i in tl.static_range(2):
            e = 4 * g + i
            x += tl.load(rates + tl.load(draw.part + at + e)) * tl.load(draw.weight + at + e)
            y += tl.load(rates + tl.load(draw.part + at + e + 2)) * tl.load(draw.weight + at + e + 2)
        rate += x * y
    drawn_with = _probability(rate + draw.extra)
    if q < row.n_near_tiles:
        drawn_with = rate * 0 + 1
    else:
        is_edge = is_edge & ~is_near & (drawn_with > 0)
        if q < first_point:
            w0, w1, w2, w3 = _words(draw, row, CELL, keys // 4)
            even, odd = tl.where(keys % 4 == 0, w0, w2), tl.where(keys % 4 == 1, w1, w3)
            is_edge = is_edge & (_uniform(tl.where(keys % 2 == 0, even, odd)) < drawn_with)
    return keys, is_edge, rate, drawn_with


@triton.jit
def _probability(rate):
    """1 − exp(−rate), by a series where the difference would lose digits."""
    return tl.where(rate < 0.01, rate * (1 - rate / 2 * (1 - rate / 3 * (1 - rate / 4 * (1 - rate / 5)))), 1 - tl.exp(-rate))


@triton.jit
def _list_kernel(draw, degrees, row_ptr, out, s: tl.constexpr, FILL: tl.constexpr, TILE: tl.constexpr):
    row = _enter(draw, s, TILE)
    ends = tl.cumsum(_rates_by_part(draw, row, s), 0)
    number = 0
    for q in range(row.n_tiles):
        keys, is_edge, _, _ = _tile(draw, row, ends, q, s, TILE)
        found = is_edge.to(tl.int32)
        if FILL:
            to = tl.load(row_ptr + row.at) + number + tl.cumsum(found, 0) - 1
            tl.store(out + to, row.graph * 0 + (row.at * draw.n_keys + keys), is_edge)
        number += tl.sum(found, 0)
    if not FILL:
        tl.store(degrees + row.at, number)


class Inputs(NamedTuple):
    """What is attended, with a row's strides; the last dimension is contiguous."""

    query: Any
    key: Any
    value: Any
    sink: Any
    scale: Any
    smallest: Any  # an edge that is drawn with less probability counts as if it were this


@triton.jit
def _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D: tl.constexpr, WIDTH: tl.constexpr):
    """Scores of a tile, −∞ where there is no edge, and its keys ``[keys, width]``."""
    c = tl.arange(0, WIDTH)
    at = (row.graph * draw.n_keys + keys)[:, None] * D + c[None, :]
    key = tl.load(inputs.key + at, is_edge[:, None] & (c < D)[None, :], 0.0).to(query.dtype)
    scores = tl.sum(query[None, :] * key, 1) * inputs.scale - tl.log(tl.maximum(drawn_with, inputs.smallest))
    return tl.where(is_edge, scores, -float("inf")), key


@triton.jit
def _attend_kernel(
    draw, inputs, out, log_sum, degrees, shares, gained, s: tl.constexpr, HAS_SINK: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, DV: tl.constexpr, WIDTH_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = _enter(draw, s, TILE)
    ends = tl.cumsum(_rates_by_part(draw, row, s), 0)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(inputs.query + row.at * D + c, c < D, 0.0).to(real)
    most, below = tl.full([], -float("inf"), real), tl.full([], 0.0, real)
    if HAS_SINK:
        most, below = tl.load(inputs.sink + row.head).to(real), below + 1
    value, gain, degree, share = tl.zeros([WIDTH_V], real), below * 0, 0, below * 0
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with = _tile(draw, row, ends, q, s, TILE)
        scores, _ = _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D, WIDTH)
        largest = tl.maximum(most, tl.max(scores, 0))
        shift = tl.where(largest > -float("inf"), largest, 0.0)
        weights, scaled = tl.exp(scores - shift), tl.exp(most - shift)
        at = (row.graph * draw.n_keys + keys)[:, None] * DV + cv[None, :]
        values = tl.load(inputs.value + at, is_edge[:, None] & (cv < DV)[None, :], 0.0).to(real)
        value = value * scaled + tl.sum(weights[:, None] * values, 0)
        below = below * scaled + tl.sum(weights, 0)
        gain = gain * scaled
        if q >= row.n_near_tiles:
            gain += tl.sum(tl.where(is_edge, weights * tl.log(tl.maximum(rate + draw.extra, 1e-30)), 0.0), 0)
            share += tl.sum(tl.where(is_edge, _probability(rate) / tl.maximum(drawn_with, 1e-30), 0.0), 0)
        else:
            share += tl.sum(tl.where(is_edge, _probability(rate), 0.0), 0)
        degree += tl.sum(is_edge.to(tl.int32), 0)
        most = largest
    is_any = below > 0
    divisor = tl.where(is_any, below, 1.0)
    is_near_row = row.n_tiles > 0
    tl.store(out + row.at * DV + cv, tl.where(is_near_row, value / divisor, 0.0), cv < DV)
    tl.store(log_sum + row.at, tl.where(is_any, most + tl.log(divisor), 0.0))
    tl.store(degrees + row.at, degree)
    tl.store(shares + row.at, share)
    tl.store(gained + row.at, gain / divisor)


@triton.jit
def _attend_backward_kernel(
    draw, inputs, grad_out, grad_gained, log_sum, delta, to_query, to_key, to_value, to_rates, to_weight,
    s: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr, WIDTH_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = _enter(draw, s, TILE)
    ends = tl.cumsum(_rates_by_part(draw, row, s), 0)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(inputs.query + row.at * D + c, c < D, 0.0).to(real)
    grad = tl.load(grad_out + row.at * DV + cv, cv < DV, 0.0).to(real)
    found = tl.zeros([WIDTH], real)
    rates, to_rate = draw.rates + row.at * (2 * s.n_groups * s.size), to_rates + row.at * (2 * s.n_groups * s.size)
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with = _tile(draw, row, ends, q, s, TILE)
        scores, key = _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D, WIDTH)
        weights = tl.exp(scores - tl.load(log_sum + row.at))
        key_at = row.graph * draw.n_keys + keys
        at_value, inside = key_at[:, None] * DV + cv[None, :], is_edge[:, None] & (cv < DV)[None, :]
        values = tl.load(inputs.value + at_value, inside, 0.0).to(real)
        step = weights * (tl.sum(values * grad[None, :], 1) - tl.load(delta + row.at)) * inputs.scale
        found += tl.sum(step[:, None] * key, 0)
        tl.atomic_add(to_value + at_value, weights[:, None] * grad[None, :], inside, sem="relaxed")
        at_key = key_at[:, None] * D + c[None, :]
        tl.atomic_add(to_key + at_key, step[:, None] * query[None, :], is_edge[:, None] & (c < D)[None, :], sem="relaxed")
        if q >= row.n_near_tiles:
            known = tl.maximum(rate + draw.extra, 1e-30)
            to_edge = tl.where(is_edge, tl.load(grad_gained + row.at) * weights / known, 0.0)
            at = key_at * (4 * s.n_groups)
            for g in tl.static_range(tl.constexpr(s.n_groups)):
                x, y = rate * 0, rate * 0
                for i in tl.static_range(2):
                    e = at + 4 * g + i
                    x += tl.load(rates + tl.load(draw.part + e)) * tl.load(draw.weight + e)
                    y += tl.load(rates + tl.load(draw.part + e + 2)) * tl.load(draw.weight + e + 2)
                for i in tl.static_range(4):
                    e = at + 4 * g + i
                    through = to_edge * (y if i < 2 else x)
                    part = tl.load(draw.part + e)
                    tl.atomic_add(to_rate + part, through * tl.load(draw.weight + e), is_edge, sem="relaxed")
                    tl.atomic_add(to_weight + e, through * tl.load(rates + part), is_edge, sem="relaxed")
    tl.store(to_query + row.at * D + c, found, c < D)


def prepare(
    rates: Tensor, part: Tensor, weight: Tensor, masks: list[Tensor | None], seed: Tensor, first_example: int,
    extra: float, reach: int, causal: bool,
) -> tuple[Draw, Sizes]:  # fmt: skip
    """What kernels need of queries' rates to parts ``(batch, heads, n_queries, parts)`` and of keys in parts."""
    batch, heads, n_queries, n_parts = rates.shape
    n_keys, n_groups = part.shape[2], part.shape[3] // 4
    size = n_parts // (2 * n_groups)
    query_mask, key_mask = (
        None if m is None and other is None else rates.new_ones(batch, n, dtype=torch.bool) if m is None else m
        for m, other, n in zip(masks, masks[::-1], (n_queries, n_keys), strict=True)
    )
    n_real = part if key_mask is None else key_mask.cumsum(1, dtype=torch.int32)
    rates, part, weight = (x.detach().contiguous() for x in (rates, part, weight))
    members = list_members(part, weight, size)
    query_mask, key_mask = (part if m is None else m.contiguous() for m in (query_mask, key_mask))
    offset = n_keys - n_queries if causal else 0
    sizes = rates, part, weight, members, query_mask, key_mask, n_real, seed, first_example, float(extra)
    draw = Draw(*sizes, reach, offset, n_queries, n_keys, heads)
    rows, columns = triton.next_power_of_2(n_groups * size), triton.next_power_of_2(size)
    masked = n_real is not part
    return draw, Sizes(size, n_groups, rows, columns, (4 * n_keys).bit_length(), CHUNK, causal, masked)


def list_edges(draw: Draw, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges that are attended, of which the host asks how many there are."""
    n_rows = draw.rates.shape[0] * draw.rates.shape[1] * draw.n_queries
    degrees = draw.part.new_empty(n_rows, dtype=torch.int32)
    _list_kernel[(n_rows,)](draw, degrees, degrees, degrees, sizes, False, TILE, num_warps=1)
    row_ptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
    cells = row_ptr.new_empty(int(row_ptr[-1]))
    _list_kernel[(n_rows,)](draw, degrees, row_ptr, cells, sizes, True, TILE, num_warps=1)
    return row_ptr, cells.sort().values % draw.n_keys


class DrawnAttention(torch.autograd.Function):
    """Attends along drawn edges; returns values, degrees of rows, Σ p/p_drawn of each, and Σ a ln(r + δ) of each.

    The last is what :func:`sbmt.block_model.fit.fit_loss` gains; its gradient reaches rates and weights alone, and
    that of the values all else.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, rates: Tensor, weight: Tensor,
        draw: Draw, sizes: Sizes, smallest: float,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        query, key, value = (x.contiguous() for x in (query, key, value))
        inputs = Inputs(query, key, value, rates if sink is None else sink, query.shape[3] ** -0.5, smallest)
        d, d_value = query.shape[3], value.shape[3]
        widths = d, triton.next_power_of_2(d), d_value, triton.next_power_of_2(d_value), TILE
        shape = query.shape[:3]
        out = value.new_empty(*shape, d_value)
        log_sum, shares, gained = (weight.new_empty(shape) for _ in range(3))
        degrees = weight.new_empty(shape, dtype=torch.int32)
        written = out, log_sum, degrees, shares, gained
        _attend_kernel[(degrees.numel(),)](draw, inputs, *written, sizes, sink is not None, *widths, num_warps=1)
        ctx.save_for_backward(query, key, value, sink, out, log_sum)
        ctx.rest = draw, sizes, smallest, widths
        ctx.mark_non_differentiable(degrees, shares)
        return out, degrees, shares, gained

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, sink, out, log_sum = ctx.saved_tensors
        draw, sizes, smallest, widths = ctx.rest
        grad, gained = grads[0].contiguous(), grads[3].contiguous()
        delta = (grad.to(log_sum.dtype) * out).sum(-1)
        to_query = torch.empty_like(query)
        to_key, to_value, to_rates, to_weight = (
            log_sum.new_zeros(x.shape) for x in (key, value, draw.rates, draw.weight)
        )
        inputs = Inputs(query, key, value, log_sum if sink is None else sink, query.shape[3] ** -0.5, smallest)
        written = to_query, to_key, to_value, to_rates, to_weight
        _attend_backward_kernel[(log_sum.numel(),)](
            draw, inputs, grad, gained, log_sum, delta, *written, sizes, *widths, num_warps=1
        )
        to_sink = None
        if sink is not None:  # rows whose query is padding have the sum 0 there
            is_row = (log_sum != 0) if sizes.masked else torch.ones_like(log_sum)
            to_sink = -((sink[:, None] - log_sum).exp() * delta * is_row).sum((0, 2)).to(sink.dtype)
        return to_query, to_key.to(key.dtype), to_value.to(value.dtype), to_sink, to_rates, to_weight, *(None,) * 3
