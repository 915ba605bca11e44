"""The paper's masks: tiles of queries by keys draw their edges, attend along them, and draw them again backward.

A tile's rates are a matrix product, as its scores are, so time does not depend on the density; memory is linear in n.
Queries that are sparse are left to :mod:`sbmt.kernels.gpu.edges`, whose programs return at once for all others.
The plain twins are :func:`sbmt.samplers.bernoulli.sample_bernoulli` and :func:`sbmt.attention.dense.attend_dense`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from sbmt.graph.masks import share_of_pairs
from sbmt.kernels.gpu.attend import Inputs
from sbmt.kernels.gpu.draw import CELL, Draw, edge_probability, random_words, uniform
from sbmt.kernels.gpu.edges import (
    FEWEST_KEYS,
    Sparse,
    attend_by_edges_kernel,
    backward_by_edges_kernel,
    list_by_edges_kernel,
    prepare_edges,
)
from sbmt.kernels.gpu.tokens import are_real, product, rows_of, strided, strided_mask, tile

TILE = 32  # queries, keys or clusters at a time; equal in all kernels, so that rounding is the same
WIDEST = 128  # of memberships, queries, keys and values, whose gradients a program holds in registers
BUILD = {"num_warps": 4, "num_stages": 1}  # also of the kernels that work by edges


class Sizes(NamedTuple):
    """The constants for which kernels are compiled; after each size comes that size rounded up for tiles."""

    k: int
    padded: int
    d: int
    width: int
    d_value: int
    width_value: int
    tile: int
    steps: int  # steps of a search among all keys
    has_edges: bool  # whether sparse tiles are drawn by edges
    is_poisson: bool  # whether an edge has probability 1 − e^(−x) instead of min(x, 1)
    causal: bool
    has_query_mask: bool
    has_key_mask: bool


class Tokens(NamedTuple):
    """A tile of a graph's queries or keys."""

    example: Any
    head: Any
    place: Any
    at: Any  # numbers among the tokens of all graphs
    inside: Any  # which of them exist
    is_real: Any


@triton.jit
def _load(x, t, N: tl.constexpr, WIDTH: tl.constexpr, first=0):
    """Loads the rows of real tokens, from column ``first`` on, with zeros elsewhere: ``[tile, WIDTH]``."""
    c = first + tl.arange(0, WIDTH)[None, :]
    return tl.load(rows_of(x, t.example, t.head, t.place)[:, None] + c, t.is_real[:, None] & (c < N), 0.0)


@triton.jit
def _store(to, t, x, N: tl.constexpr, WIDTH: tl.constexpr):
    at, inside = tile(to, t.at, t.inside, N, WIDTH)
    tl.store(at, x, inside)


@triton.jit
def _number(draw, sparse, number, s: tl.constexpr):
    """Returns the number of queries, or 0 if those of this tile are drawn by edges."""
    n = draw.n_queries
    if s.has_edges:
        n = tl.where(tl.load(sparse.is_sparse + tl.program_id(1) * tl.cdiv(n, s.tile) + number), 0, n)
    return n


@triton.jit
def _number_seen(draw, n_queries, s: tl.constexpr):
    """Returns the number of keys that the program's tile of queries may attend to, 0 if it has no queries."""
    n = draw.n_keys
    if s.causal:
        n = tl.minimum(n, (tl.program_id(0) + 1) * s.tile + draw.offset)
    return tl.where(n_queries > 0, n, 0)


@triton.jit
def _enter(draw, inputs, n, number, s: tl.constexpr, OF_KEYS: tl.constexpr):
    """Loads a tile's queries, or its keys and values."""
    mask, n_all = (draw.key_mask, draw.n_keys) if OF_KEYS else (draw.query_mask, draw.n_queries)
    graph = tl.program_id(1).to(tl.int64)
    example, place = graph // draw.n_heads, number * s.tile + tl.arange(0, s.tile)
    inside = place < n
    is_real = are_real(mask, example, place, inside, s.has_key_mask if OF_KEYS else s.has_query_mask)
    t = Tokens(example, graph % draw.n_heads, place, graph * n_all + place, inside, is_real)
    return (
        (t, _load(inputs.key, t, s.d, s.width), _load(inputs.value, t, s.d_value, s.width_value))
        if OF_KEYS
        else (t, _load(inputs.query, t, s.d, s.width))
    )


@triton.jit
def _find_edges(draw, queries, keys, s: tl.constexpr):
    """Returns which pairs of a tile are edges, and which of these edges are drawn; all other edges are certain."""
    drawn_with = tl.full([s.tile, s.tile], 0.0, draw.rates.start.dtype.element_ty) + draw.extra
    for first in range(0, s.padded, s.tile):
        rates = _load(draw.rates, queries, s.k, s.tile, first)
        drawn_with += product(rates, tl.trans(_load(draw.members, keys, s.k, s.tile, first)))
    if s.is_poisson:
        drawn_with = edge_probability(drawn_with)
    place, block = queries.place[:, None], tl.min(keys.place) // 4 + tl.arange(0, s.tile // 4)[None, :]
    w0, w1, w2, w3 = random_words(draw, keys.example, keys.head, place, CELL, place * 0 + block)
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), [s.tile, s.tile])
    distance = place + draw.offset - keys.place[None, :]
    is_pair = queries.is_real[:, None] & keys.is_real[None, :]
    if s.causal:
        is_pair = is_pair & (distance >= 0)
    is_near = (distance <= draw.reach) & (-distance <= draw.reach)
    is_drawn = is_pair & ~is_near & (uniform(words) < drawn_with)
    return is_drawn | (is_pair & is_near), is_drawn


@triton.jit
def _list_kernel(draw, inputs, sparse, degrees, row_ptr, out, s: tl.constexpr, FILL: tl.constexpr):
    n_queries = _number(draw, sparse, tl.program_id(0), s)
    n_keys = _number_seen(draw, n_queries, s)
    queries, _ = _enter(draw, inputs, n_queries, tl.program_id(0), s, False)
    number = queries.at * 0
    if FILL:
        number = tl.load(row_ptr + queries.at, queries.inside, 0)
    for j in range(tl.cdiv(n_keys, s.tile)):
        keys, _, _ = _enter(draw, inputs, n_keys, j, s, True)
        found = _find_edges(draw, queries, keys, s)[0].to(tl.int32)
        if FILL:
            to = number[:, None] + tl.cumsum(found, 1) - 1
            tl.store(out + to, queries.at[:, None] * draw.n_keys + keys.place[None, :], found > 0)
        number += tl.sum(found, 1)
    if not FILL:
        tl.store(degrees + queries.at, number, queries.inside)


@triton.jit
def _attend_kernel(draw, inputs, sparse, out, log_sum, degrees, s: tl.constexpr, HAS_SINK: tl.constexpr):
    n_queries = _number(draw, sparse, tl.program_id(0), s)
    n_keys = _number_seen(draw, n_queries, s)
    queries, query = _enter(draw, inputs, n_queries, tl.program_id(0), s, False)
    real = log_sum.dtype.element_ty
    most, below = tl.full([s.tile], -float("inf"), real), tl.full([s.tile], 0.0, real)
    if HAS_SINK:
        most, below = below + tl.load(inputs.sink + queries.head).to(real), below + 1
    degree, found = tl.full([s.tile], 0.0, real), tl.full([s.tile, s.width_value], 0.0, real)
    for j in range(tl.cdiv(n_keys, s.tile)):
        keys, key, value = _enter(draw, inputs, n_keys, j, s, True)
        is_edge, _ = _find_edges(draw, queries, keys, s)
        scores = tl.where(is_edge, product(query, tl.trans(key)) * inputs.scale, -float("inf"))
        largest = tl.maximum(most, tl.max(scores, 1))
        shift = tl.where(largest > -float("inf"), largest, 0.0)
        weights, scaled = tl.exp(scores - shift[:, None]), tl.exp(most - shift)
        found = found * scaled[:, None] + product(weights.to(value.dtype), value)
        below = below * scaled + tl.sum(weights, 1)
        degree += tl.sum(is_edge.to(tl.int32), 1)
        most = largest
    divisor = tl.where(below > 0, below, 1.0)
    _store(out, queries, found / divisor[:, None], s.d_value, s.width_value)
    tl.store(log_sum + queries.at, tl.where(below > 0, most + tl.log(divisor), 0.0), queries.inside)
    tl.store(degrees + queries.at, degree, queries.inside)


@triton.jit
def _backward_kernel(
    draw, inputs, sparse, grad_out, grad_degrees, log_sum, deltas, to_rates, to_score, to_value, s: tl.constexpr,
    IS_SCORE: tl.constexpr, OF_KEYS: tl.constexpr,
):  # fmt: skip
    """Computes gradients of a tile of queries and their rates, or of keys, values and memberships."""
    first, n_others, n_keys = 0, draw.n_queries, draw.n_keys
    if OF_KEYS:
        n_others = _number(draw, sparse, 0, s)
        if s.causal:
            first = tl.maximum(tl.program_id(0) * s.tile - draw.offset, 0) // s.tile
            if s.has_edges:
                n_others = tl.load(sparse.n_tiled + tl.program_id(1)).to(tl.int32)
        n_keys = tl.where(n_others > 0, n_keys, 0)
        keys, key, value = _enter(draw, inputs, n_keys, tl.program_id(0), s, True)
    else:
        n_queries = _number(draw, sparse, tl.program_id(0), s)
        n_keys = _number_seen(draw, n_queries, s)
        n_others = n_keys
        queries, query = _enter(draw, inputs, n_queries, tl.program_id(0), s, False)
    real = log_sum.dtype.element_ty
    of_rates, of_score = tl.full([s.tile, s.padded], 0.0, real), tl.full([s.tile, s.width], 0.0, real)
    of_value, per_edge = tl.full([s.tile, s.width_value], 0.0, real), tl.load(grad_degrees + tl.program_id(1))
    for other in range(first, tl.cdiv(n_others, s.tile)):
        if OF_KEYS:
            queries, query = _enter(draw, inputs, _number(draw, sparse, other, s), other, s, False)
        else:
            keys, key, value = _enter(draw, inputs, n_keys, other, s, True)
        grad = _load(grad_out, queries, s.d_value, s.width_value)
        delta = tl.load(deltas + queries.at, queries.is_real, 0.0)
        below = tl.load(log_sum + queries.at, queries.is_real, 0.0)
        is_edge, is_drawn = _find_edges(draw, queries, keys, s)
        scores = product(query, tl.trans(key)) * inputs.scale
        weights = tl.where(is_edge, tl.exp(tl.minimum(scores - below[:, None], 0.0)), 0.0)
        step = weights * (product(grad, tl.trans(value)) - delta[:, None])
        to_rate = tl.where(is_drawn, (step * scores if IS_SCORE else step) + per_edge, 0.0)
        step = (step * inputs.scale).to(key.dtype)
        if OF_KEYS:
            of_rates += product(tl.trans(to_rate), _load(draw.rates, queries, s.k, s.padded))
            of_score += product(tl.trans(step), query)
            of_value += product(tl.trans(weights.to(grad.dtype)), grad)
        else:
            of_rates += product(to_rate, _load(draw.members, keys, s.k, s.padded))
            of_score += product(step, key)
    own = keys if OF_KEYS else queries
    _store(to_rates, own, of_rates, s.k, s.padded)
    _store(to_score, own, of_score, s.d, s.width)
    if OF_KEYS:
        _store(to_value, own, of_value, s.d_value, s.width_value)


def prepare_pairs(
    rates: Tensor, model: Any, tokens: tuple[Tensor, ...], sink: Tensor | None, is_poisson: bool, seed: Tensor,
    first_example: int, extra: float, reach: int,
) -> tuple[Draw, Inputs, Sparse, Sizes]:  # fmt: skip
    """Prepares inputs from a model with dense memberships, its queries' rates, and queries, keys and values."""
    query_mask, key_mask, causal = model.masks
    masks, offset = (query_mask, key_mask), model.shape[3] - model.shape[2] if causal else 0
    rates, members = rates.detach(), model.key_membership.detach()
    has_edges, by = model.shape[3] >= FEWEST_KEYS, (is_poisson, offset if causal else None, TILE)
    sparse = prepare_edges(rates, members, extra, *by) if has_edges else Sparse(*(seed,) * 4)
    sides = strided(rates), seed, seed, strided(members)
    real = (strided_mask(mask, seed) for mask in masks)
    numbers = seed, first_example, float(extra), reach, offset, *model.shape[2:], model.shape[1]
    rest = seed if sink is None else sink, tokens[0].shape[3] ** -0.5, 1.0, 1.0
    inputs: Any = *(strided(x.detach()) for x in tokens), *rest
    widths = (n for x in (rates, *tokens[1:]) for n in (x.shape[3], max(16, triton.next_power_of_2(x.shape[3]))))
    search = model.shape[3].bit_length(), has_edges
    sizes: Any = *widths, TILE, *search, is_poisson, causal, *(mask is not None for mask in masks)
    return Draw(*sides, *real, *numbers), Inputs(*inputs), sparse, Sizes(*sizes)


def list_pairs(model: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    """Returns ``row_ptr`` and ``keys`` of a model's edges; the rest are the last arguments of :func:`prepare_pairs`."""
    tokens = (model.key_membership,) * 3  # placeholders that are not read
    draw, inputs, sparse, sizes = prepare_pairs(model.query_rates, model, tokens, None, *rest)
    tiles, rows = _grids(draw.rates.start)
    degrees = draw.seed.new_empty(rows[0] * rows[1])
    row_ptr = cells = degrees
    for fill in (False, True):
        given = degrees, row_ptr, cells, sizes, fill
        _list_kernel[tiles](draw, inputs, sparse, *given, **BUILD)
        if sizes.has_edges:
            list_by_edges_kernel[rows](draw, sparse, *given, **BUILD)
        if not fill:
            row_ptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
            cells = row_ptr.new_empty(int(row_ptr[-1]))
    return row_ptr, cells.sort().values % draw.n_keys


def _grids(tokens: Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns one grid with a program per tile of tokens, and one with a program per token."""
    n_graphs = tokens.shape[0] * tokens.shape[1]
    return (triton.cdiv(tokens.shape[2], TILE), n_graphs), (tokens.shape[2], n_graphs)


class PairAttention(torch.autograd.Function):
    """Attends along drawn edges; returns values and the number of edges of each graph, ``(batch, heads)``.

    A drawn edge's rate gets the gradients of its :func:`~sbmt.straight_through_gate` and of the number of edges.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, rates: Tensor, members: Tensor,
        draw: Draw, inputs: Inputs, sparse: Sparse, sizes: Sizes, is_score: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Computes the outputs; tensors are also in ``draw`` and ``inputs``, but need gradients."""
        out = value.new_empty(*query.shape[:3], sizes.d_value)
        log_sum, degrees = rates.new_empty(2, *query.shape[:3])
        tiles, rows = _grids(query)
        given = draw, inputs, sparse, out, log_sum, degrees, sizes, sink is not None
        _attend_kernel[tiles](*given, **BUILD)
        if sizes.has_edges:
            attend_by_edges_kernel[rows](*given, **BUILD)
        ctx.save_for_backward(query, key, value, sink, rates, members, out, log_sum)
        ctx.rest = draw, inputs, sparse, sizes, is_score
        return out, degrees.sum(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_degrees: Tensor) -> tuple[Tensor | None, ...]:
        """Draws the same edges again, in tiles once for queries and once for keys."""
        query, key, value, sink, rates, members, out, log_sum = ctx.saved_tensors
        draw, inputs, sparse, sizes, is_score = ctx.rest
        to_query, to_rates = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, rates))
        sums = [torch.zeros(x.shape, dtype=log_sum.dtype, device=x.device) for x in (members, key, value)]
        delta = (grad.to(log_sum.dtype) * out).sum(3)
        read = draw, inputs, sparse, strided(grad), grad_degrees.contiguous(), log_sum, delta
        tiles, rows = _grids(query)
        _backward_kernel[tiles](*read, to_rates, to_query, to_query, sizes, is_score, False, **BUILD)
        _backward_kernel[_grids(key)[0]](*read, *sums, sizes, is_score, True, **BUILD)
        if sizes.has_edges:
            backward_by_edges_kernel[rows](*read, to_rates, to_query, *sums, sizes, is_score, **BUILD)
        to_sink = None if sink is None else -((sink[:, None] - log_sum).exp() * delta).sum((0, 2)).to(sink.dtype)
        to_key, to_value = sums[1].to(key.dtype), sums[2].to(value.dtype)
        return to_query, to_key, to_value, to_sink, to_rates, sums[0], None, None, None, None, None


def attend_pairs(tokens: tuple[Tensor, ...], model: Any, settings: Any, *rest: Any) -> tuple[Tensor, Tensor]:
    """Returns values and densities for queries, keys and values; ``rest`` is as in :func:`list_pairs`."""
    rates = model.query_rates
    drawn = prepare_pairs(rates, model, tokens, settings.sink, settings.sampler == "fastrg", *rest)
    given = *tokens, settings.sink, rates, model.key_membership, *drawn
    values, degrees = PairAttention.apply(*given, settings.gate_rule == "score")
    return values, share_of_pairs(degrees, model.shape, *model.masks)


def can_attend(tokens: tuple[Tensor, ...], model: Any) -> bool:
    """Returns whether a tile's gradients fit into a program's registers and all factors have the same type."""
    widths, types = (*(x.shape[3] for x in tokens), model.n_clusters), {x.dtype for x in tokens}
    return max(widths) <= WIDEST and len(types) == 1 and torch.float64 not in types
