r"""The paper's masks where they are sparse: one program per row draws the row's edges and attends along them.

Row i draws Poisson candidates at rate $c_i x_{ij}$ as :func:`sbmt.samplers.exact.sample_with_torch` does: a cluster by
the row's rates, then a key of that cluster by running sums over keys. Only the first candidate on each key counts, and
it is kept with probability $p(x_{ij}) / (1 - e^{-c_i x_{ij}})$. Rows that expect many candidates are drawn key by key.
As for fitted masks, no edge is stored, tiles of candidates are drawn again wherever they are needed, and the host never
waits: the device itself decides which graphs are sparse, and :mod:`sbmt.kernels.gpu.pairs` attends in the others. In
causal masks it decides for each tile of rows, by the keys that the first one sees, so that later tokens change nothing.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.draw import (
    CANDIDATE,
    CELL,
    DENSE_SHARE,
    KEEP,
    draw_number,
    edge_probability,
    first_above,
    random_words,
    uniform,
)
from sbmt.kernels.gpu.tokens import are_real, rows_of, tile

SPARSE_SHARE = 1 / 64  # candidates per pair up to which edges move less memory than tiles take time (docs/speed.md)
FEWEST_KEYS = 512  # rows with fewer keys are tiled, since launches would take longer
MOST_BOOST = 32.0  # as in the sampler
ROUNDED = 1 + 1e-5  # so that rounding never makes c too small


class Sparse(NamedTuple):
    """The additional inputs for drawing by edges: tensors in Python, pointers in a kernel."""

    until: Any  # float64 (graphs, n_keys, k), running sums of the keys' memberships
    boost: Any  # c, (graphs, n_queries)
    is_sparse: Any  # (graphs, tiles), which rows are drawn by edges
    n_tiled: Any  # (graphs,), in causal masks the number of rows up to the last tile that is not


class Row(NamedTuple):
    """The position of a program, and the parts of its row."""

    at: Any  # among all rows
    graph: Any
    example: Any
    head: Any
    query: Any
    rates: Any  # to all clusters
    ends: Any  # running sums of the rates to all keys of each cluster
    boost: Any
    n_seen: Any  # keys that the row may attend to, the first ones
    low: Any  # the window's first and last key
    high: Any
    n_drawn: Any  # candidates that are drawn by rates
    n_points: Any  # candidates in all, including those that may be any key
    n_near: Any  # tiles of the window
    first_point: Any  # the first tile after those of keys that are visited one by one
    n_tiles: Any


@triton.jit
def _enter_row(draw, sparse, s: tl.constexpr):
    query, graph = tl.program_id(0), tl.program_id(1).to(tl.int64)
    example, head, at = graph // draw.n_heads, graph % draw.n_heads, graph * draw.n_queries + query
    c, place, n_seen = tl.arange(0, s.padded), query + draw.offset, draw.n_keys
    if s.causal:
        n_seen = place + 1
    rates = tl.load(rows_of(draw.rates, example, head, query) + c, c < s.k, 0.0)
    last = sparse.until + (graph * draw.n_keys + n_seen - 1) * s.k
    ends = tl.cumsum(rates * tl.load(last + c, c < s.k, 0.0).to(rates.dtype), 0)
    boost = tl.load(sparse.boost + at)
    total, spread = boost * tl.max(ends, 0), boost * draw.extra * n_seen
    low, high = 0, -1
    if draw.reach >= 0:
        low, high = tl.maximum(place - draw.reach, 0), tl.minimum(place + draw.reach, n_seen - 1)
    n_drawn, n_spread, n_cells = 0, 0, n_seen
    if total + spread <= n_seen * DENSE_SHARE:
        n_cells = 0
        n_drawn = draw_number(total, draw, example, head, query, 0)
        n_spread = draw_number(spread, draw, example, head, query, 1)
    n_near = tl.cdiv(tl.maximum(high - low + 1, 0), s.tile)
    first_point, n_points = n_near + tl.cdiv(n_cells, s.tile), n_drawn + n_spread
    n_tiles = first_point + tl.cdiv(n_points, s.tile)
    if not are_real(draw.query_mask, example, query, query >= 0, s.has_query_mask):
        n_tiles = 0
    of_row = at, graph, example, head, query, rates, ends, boost, n_seen
    return Row(*of_row, low, high, n_drawn, n_points, n_near, first_point, n_tiles)


@triton.jit
def _is_sparse(draw, sparse, s: tl.constexpr):
    """Whether the program's row is drawn by edges."""
    n_tiles = tl.cdiv(draw.n_queries, s.tile)
    return tl.load(sparse.is_sparse + tl.program_id(1) * n_tiles + tl.program_id(0) // s.tile) != 0


@triton.jit
def _candidates(draw, sparse, row, t, s: tl.constexpr):
    """Returns the keys of candidates t, and which of them exist; some are padding."""
    w0, w1, w2, _ = random_words(draw, row.example, row.head, row.query, CANDIDATE, t)
    cluster = tl.sum((row.ends[None, :] <= (uniform(w0) * tl.max(row.ends, 0))[:, None]).to(tl.int32), 1)
    of_cluster = sparse.until + row.graph * draw.n_keys * s.k + tl.minimum(cluster, s.k - 1)
    mass = tl.load(of_cluster + (row.n_seen - 1).to(tl.int64) * s.k)
    place, none = (w1.to(tl.float64) + 0.5) / 4294967296.0 * mass, t.to(tl.int64) * 0
    keys = first_above(of_cluster, s.k, place, none, none + row.n_seen, s.steps).to(tl.int32)
    anywhere = ((w2.to(tl.float64) + 0.5) / 4294967296.0 * row.n_seen).to(tl.int32)
    keys = tl.where(t < row.n_drawn, keys, anywhere)
    return keys, (t < row.n_points) & (keys < row.n_seen)  # rounding alone leads to a cluster without keys


@triton.jit
def _tokens(x, row, keys, is_read, N: tl.constexpr, WIDTH: tl.constexpr):
    """Loads the numbers of a tile's keys, with zeros elsewhere: ``[tile, WIDTH]``."""
    c = tl.arange(0, WIDTH)[None, :]
    at = rows_of(x, row.example, row.head, keys)[:, None] + c
    return tl.load(at, is_read[:, None] & (c < N), 0.0)


@triton.jit
def _add(to, at, is_edge, x, N: tl.constexpr, WIDTH: tl.constexpr):
    places, inside = tile(to, at, is_edge, N, WIDTH)
    tl.atomic_add(places, x, inside, sem="relaxed")


@triton.jit
def _visit(draw, sparse, row, q, s: tl.constexpr):
    """Returns the keys of tile q, and which of them are edges."""
    lane, is_near_tile, is_cell = tl.arange(0, s.tile), q < row.n_near, q < row.first_point
    if is_near_tile:
        keys = row.low + q * s.tile + lane
        is_edge = keys <= row.high
    elif is_cell:
        keys = (q - row.n_near) * s.tile + lane
        is_edge = keys < row.n_seen
    else:
        keys, is_edge = _candidates(draw, sparse, row, (q - row.first_point) * s.tile + lane, s)
        is_repeat = (keys[:, None] == keys[None, :]) & is_edge[None, :] & (lane[None, :] < lane[:, None])
        is_repeated = tl.max(is_repeat.to(tl.int32), 1)
        for before in range(0, q - row.first_point):
            others, are_edges = _candidates(draw, sparse, row, before * s.tile + lane, s)
            is_repeat = (keys[:, None] == others[None, :]) & are_edges[None, :]
            is_repeated = tl.maximum(is_repeated, tl.max(is_repeat.to(tl.int32), 1))
        is_edge = is_edge & (is_repeated == 0)
    keys = tl.where(is_edge, keys, 0)
    is_edge = are_real(draw.key_mask, row.example, keys, is_edge, s.has_key_mask)
    if not is_near_tile:
        is_edge = is_edge & ((keys < row.low) | (keys > row.high))
        purpose = tl.where(is_cell, CELL, KEEP)
        w0, w1, w2, w3 = random_words(draw, row.example, row.head, row.query, purpose, keys // 4)
        even, odd = tl.where(keys % 4 == 0, w0, w2), tl.where(keys % 4 == 1, w1, w3)
        u = uniform(tl.where(keys % 2 == 0, even, odd))
        is_open = is_edge & (is_cell | (u * row.boost >= 1))  # candidates below 1/c are kept at any probability
        members = _tokens(draw.members, row, keys, is_open, s.k, s.padded)
        x = tl.sum(members * row.rates[None, :], 1) + draw.extra
        found = tl.where(is_cell, 1.0, edge_probability(row.boost * x))
        is_edge = is_edge & (~is_open | (u * found < (edge_probability(x) if s.is_poisson else tl.minimum(x, 1.0))))
    return keys, is_edge


@triton.jit
def list_by_edges_kernel(draw, sparse, degrees, row_ptr, out, s: tl.constexpr, FILL: tl.constexpr):
    """Counts the edges of a row, or lists their cells."""
    if not _is_sparse(draw, sparse, s):
        return
    row, number = _enter_row(draw, sparse, s), 0
    for q in range(row.n_tiles):
        keys, is_edge = _visit(draw, sparse, row, q, s)
        found = is_edge.to(tl.int32)
        if FILL:
            to = tl.load(row_ptr + row.at) + number + tl.cumsum(found, 0) - 1
            tl.store(out + to, row.at * draw.n_keys + keys, is_edge)
        number += tl.sum(found, 0)
    if not FILL:
        tl.store(degrees + row.at, number)


@triton.jit
def attend_by_edges_kernel(draw, inputs, sparse, out, log_sum, degrees, s: tl.constexpr, HAS_SINK: tl.constexpr):
    """Attends along the edges of a row."""
    if not _is_sparse(draw, sparse, s):
        return
    row = _enter_row(draw, sparse, s)
    real = log_sum.dtype.element_ty
    c, cv = tl.arange(0, s.width), tl.arange(0, s.width_value)
    query = tl.load(rows_of(inputs.query, row.example, row.head, row.query) + c, c < s.d, 0.0).to(real)
    most, below = tl.full([], -float("inf"), real), tl.full([], 0.0, real)
    if HAS_SINK:
        most, below = tl.load(inputs.sink + row.head).to(real), below + 1
    found, degree = tl.full([s.width_value], 0.0, real), 0
    for q in range(row.n_tiles):
        keys, is_edge = _visit(draw, sparse, row, q, s)
        key = _tokens(inputs.key, row, keys, is_edge, s.d, s.width).to(real)
        scores = tl.where(is_edge, tl.sum(query[None, :] * key, 1) * inputs.scale, -float("inf"))
        largest = tl.maximum(most, tl.max(scores, 0))
        shift = tl.where(largest > -float("inf"), largest, 0.0)
        weights, scaled = tl.exp(scores - shift), tl.exp(most - shift)
        value = _tokens(inputs.value, row, keys, is_edge, s.d_value, s.width_value).to(real)
        found = found * scaled + tl.sum(weights[:, None] * value, 0)
        below = below * scaled + tl.sum(weights, 0)
        degree += tl.sum(is_edge.to(tl.int32), 0)
        most = largest
    divisor = tl.where(below > 0, below, 1.0)
    tl.store(out + row.at * s.d_value + cv, found / divisor, cv < s.d_value)
    tl.store(log_sum + row.at, tl.where(below > 0, most + tl.log(divisor), 0.0))
    tl.store(degrees + row.at, degree)


@triton.jit
def backward_by_edges_kernel(
    draw, inputs, sparse, grad_out, grad_degrees, log_sum, deltas, to_rates, to_query, to_members, to_key, to_value,
    s: tl.constexpr, IS_SCORE: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of a query and its rates, and adds to those of memberships, keys and values."""
    if not _is_sparse(draw, sparse, s):
        return
    row = _enter_row(draw, sparse, s)
    real = log_sum.dtype.element_ty
    k, c, cv = tl.arange(0, s.padded), tl.arange(0, s.width), tl.arange(0, s.width_value)
    query = tl.load(rows_of(inputs.query, row.example, row.head, row.query) + c, c < s.d, 0.0).to(real)
    grad = tl.load(rows_of(grad_out, row.example, row.head, row.query) + cv, cv < s.d_value, 0.0).to(real)
    delta, below = tl.load(deltas + row.at), tl.load(log_sum + row.at)
    per_edge = tl.load(grad_degrees + row.graph)
    of_rates, of_query = tl.full([s.padded], 0.0, real), tl.full([s.width], 0.0, real)
    for q in range(row.n_tiles):
        keys, is_edge = _visit(draw, sparse, row, q, s)
        at = row.graph * draw.n_keys + keys
        key = _tokens(inputs.key, row, keys, is_edge, s.d, s.width).to(real)
        value = _tokens(inputs.value, row, keys, is_edge, s.d_value, s.width_value).to(real)
        scores = tl.sum(query[None, :] * key, 1) * inputs.scale
        weights = tl.where(is_edge, tl.exp(tl.minimum(scores - below, 0.0)), 0.0)
        step = weights * (tl.sum(value * grad[None, :], 1) - delta)
        of_query += tl.sum((step * inputs.scale)[:, None] * key, 0)
        _add(to_value, at, is_edge, weights[:, None] * grad[None, :], s.d_value, s.width_value)
        _add(to_key, at, is_edge, (step * inputs.scale)[:, None] * query[None, :], s.d, s.width)
        if q >= row.n_near:
            to_rate = tl.where(is_edge, (step * scores if IS_SCORE else step) + per_edge, 0.0)
            of_rates += tl.sum(to_rate[:, None] * _tokens(draw.members, row, keys, is_edge, s.k, s.padded), 0)
            _add(to_members, at, is_edge, to_rate[:, None] * row.rates[None, :], s.k, s.padded)
    tl.store(to_query + row.at * s.d + c, of_query, c < s.d)
    tl.store(to_rates + row.at * s.k + k, of_rates, k < s.k)


def prepare_edges(
    rates: Tensor, members: Tensor, extra: float, is_poisson: bool, offset: int | None, tile: int
) -> Sparse:
    """Prepares the kernels' inputs from the queries' rates to clusters and the keys' memberships, in O(n k).

    In causal masks ``offset`` is the number of keys before the first query's own; in others it is None. ``tile`` is the
    number of rows that are drawn alike.
    """
    until, n_keys = members.cumsum(2, dtype=torch.float64), members.shape[2]
    seen = slice(-1, None)
    n_seen: Any = n_keys
    if offset is not None:
        seen, n_seen = slice(offset, None), torch.arange(offset + 1, n_keys + 1, device=rates.device)
    boost = rates.new_ones(rates.shape[:3])
    if not is_poisson:
        most = members.amax(2, keepdim=True) if offset is None else members.cummax(2).values
        bound = (rates * most[:, :, seen]).sum(3) + extra  # ≥ max_j x_ij
        bound = (bound * ROUNDED).clamp(1e-30, 1.0)
        boost = (-torch.log1p(-bound) / bound * ROUNDED).clamp(max=MOST_BOOST)
    number = boost * ((rates * until[:, :, seen].to(rates.dtype)).sum(3) + extra * n_seen)  # of candidates per row
    if offset is None:
        is_sparse = number.clamp(max=n_keys).mean(2, keepdim=True) <= SPARSE_SHARE * n_keys
        return Sparse(until, boost, is_sparse.expand_as(boost)[:, :, ::tile].contiguous(), until)
    is_sparse = ((number <= SPARSE_SHARE * n_seen) & (n_seen >= FEWEST_KEYS))[:, :, ::tile].contiguous()
    ends = torch.arange(tile, tile * is_sparse.shape[2] + 1, tile, device=rates.device)
    return Sparse(until, boost, is_sparse, ends.masked_fill(is_sparse, 0).amax(2))
