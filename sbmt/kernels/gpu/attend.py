"""Attention along edges while they are drawn, and the fit to it; the backward pass draws the same edges again.

The plain twin is :func:`sbmt.attention.dense.attend_dense` along the edges of
:func:`~sbmt.kernels.gpu.draw.list_edges`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.draw import TILE, Draw, Sizes, edge_probability, enter_row, part_rate, visit_tile
from sbmt.kernels.gpu.tokens import are_real, rows_of, strided
from sbmt.kernels.gpu.totals import finish_keys

GRAPHS = 1024  # graphs per step in the means over all graphs


class Inputs(NamedTuple):
    """The inputs of attention: queries, keys and values as :func:`sbmt.kernels.gpu.tokens.strided` returns them."""

    query: Any
    key: Any
    value: Any
    sink: Any
    scale: Any
    smallest: Any  # less probable edges are reweighted as if they had this probability
    c: Any  # edges per query, to which the rates are fitted


@triton.jit
def _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D: tl.constexpr, WIDTH: tl.constexpr):
    """Returns the scores of a tile, −∞ where there is no edge, and its keys ``[keys, width]``."""
    c = tl.arange(0, WIDTH)
    at = rows_of(inputs.key, row.example, row.head, keys)[:, None] + c[None, :]
    key = tl.load(at, is_edge[:, None] & (c < D)[None, :], 0.0).to(query.dtype)
    scores = tl.sum(query[None, :] * key, 1) * inputs.scale - tl.log(tl.maximum(drawn_with, inputs.smallest))
    return tl.where(is_edge, scores, -float("inf")), key


@triton.jit
def _attend_kernel(
    draw, inputs, out, log_sum, of_rows, s: tl.constexpr, HAS_SINK: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, DV: tl.constexpr, WIDTH_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = enter_row(draw, s, TILE)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(rows_of(inputs.query, row.example, row.head, row.query) + c, c < D, 0.0).to(real)
    most, below = tl.full([], -float("inf"), real), tl.full([], 0.0, real)
    if HAS_SINK:
        most, below = tl.load(inputs.sink + row.head).to(real), below + 1
    value, gain, degree, share = tl.zeros([WIDTH_V], real), below * 0, 0, below * 0
    total = below * 0 + row.total
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with, is_own = visit_tile(draw, row, q, s, TILE)
        scores, _ = _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D, WIDTH)
        largest = tl.maximum(most, tl.max(scores, 0))
        shift = tl.where(largest > -float("inf"), largest, 0.0)
        weights, scaled = tl.exp(scores - shift), tl.exp(most - shift)
        at = rows_of(inputs.value, row.example, row.head, keys)[:, None] + cv[None, :]
        values = tl.load(at, is_edge[:, None] & (cv < DV)[None, :], 0.0).to(real)
        value = value * scaled + tl.sum(weights[:, None] * values, 0)
        below = below * scaled + tl.sum(weights, 0)
        gain = gain * scaled
        if q >= row.n_near:
            gain += tl.sum(tl.where(is_edge, weights * tl.log(tl.maximum(rate + draw.extra, 1e-30)), 0.0), 0)
            share += tl.sum(tl.where(is_edge, edge_probability(rate) / tl.maximum(drawn_with, 1e-30), 0.0), 0)
        else:
            share += tl.sum(tl.where(is_edge, edge_probability(rate), 0.0), 0)
        total += tl.sum(tl.where(is_own, rate, 0.0), 0)
        degree += tl.sum(is_edge.to(tl.int32), 0)
        most = largest
    is_any = below > 0
    divisor = tl.where(is_any, below, 1.0)
    to = rows_of(out, row.example, row.head, row.query)
    tl.store(to + cv, value / divisor, cv < DV)
    tl.store(log_sum + row.at, tl.where(is_any, most + tl.log(divisor), 0.0))
    here = row.n_listed + tl.arange(0, s.chunk)  # keys of a causal row's own chunk
    are_visible = are_real(draw.key_mask, row.example, here, here < row.cell_high, s.has_key_mask)
    n_visible = row.n_real + tl.sum(are_visible.to(tl.int32), 0)
    to, n_rows, is_real = of_rows + row.at, tl.num_programs(0), row.is_real.to(real)
    tl.store(to, degree)
    tl.store(to + n_rows, share)
    tl.store(to + 2 * n_rows, total - inputs.c * gain / divisor)
    tl.store(to + 3 * n_rows, n_visible * is_real)
    tl.store(to + 4 * n_rows, is_real)


@triton.jit
def _means_kernel(sums, densities, loss, per_query, n_graphs, IS_FITTED: tl.constexpr, BLOCK: tl.constexpr):
    """Computes all densities, the loss, and one over the number of real queries, from sums over each graph's rows."""
    nothing = tl.full([], 0.0, sums.dtype.element_ty)
    found, n_queries = nothing, nothing
    for first in range(0, n_graphs, BLOCK):
        at = first + tl.arange(0, BLOCK)
        of_graph, inside = sums + at, at < n_graphs
        n_pairs = tl.maximum(tl.load(of_graph + 3 * n_graphs, inside, 0.0), 1.0)
        tl.store(densities + at, tl.load(of_graph, inside, 0.0) / n_pairs, inside)
        tl.store(densities + n_graphs + at, tl.load(of_graph + n_graphs, inside, 0.0) / n_pairs, inside)
        found += tl.sum(tl.load(of_graph + 2 * n_graphs, inside, 0.0), 0)
        n_queries += tl.sum(tl.load(of_graph + 4 * n_graphs, inside, 0.0), 0)
    tl.store(loss, found / tl.maximum(n_queries, 1.0) if IS_FITTED else nothing)
    tl.store(per_query, 1 / tl.maximum(n_queries, 1.0))


@triton.jit
def _attend_backward_kernel(
    draw, inputs, grad_out, grad_loss, per_query, out, log_sum, to_query, to_key, to_value, to_rates, to_weight,
    of_rows, s: tl.constexpr, HAS_SINK: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr,
    WIDTH_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = enter_row(draw, s, TILE)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(rows_of(inputs.query, row.example, row.head, row.query) + c, c < D, 0.0).to(real)
    grad = tl.load(rows_of(grad_out, row.example, row.head, row.query) + cv, cv < DV, 0.0).to(real)
    value = tl.load(rows_of(out, row.example, row.head, row.query) + cv, cv < DV, 0.0).to(real)
    delta, below = tl.sum(grad * value, 0), tl.load(log_sum + row.at)
    to_sink = delta * 0
    if HAS_SINK:
        to_sink = -tl.exp(tl.load(inputs.sink + row.head).to(real) - below) * delta
    tl.store(of_rows + row.at, to_sink)
    found = tl.zeros([WIDTH], real)
    rates, to_rate = draw.rates + row.at * (2 * s.n_groups * s.size), to_rates + row.at * (2 * s.n_groups * s.size)
    per_rate = tl.load(grad_loss).to(real) * tl.load(per_query)
    _lead_total_back(draw, row, rates, to_rate, per_rate, s)
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with, is_own = visit_tile(draw, row, q, s, TILE)
        scores, key = _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D, WIDTH)
        weights = tl.exp(scores - below)
        at = rows_of(inputs.value, row.example, row.head, keys)[:, None] + cv[None, :]
        inside = is_edge[:, None] & (cv < DV)[None, :]
        values = tl.load(at, inside, 0.0).to(real)
        step = weights * (tl.sum(values * grad[None, :], 1) - delta) * inputs.scale
        found += tl.sum(step[:, None] * key, 0)
        key_at = row.graph * draw.n_keys + keys
        to = to_value + key_at[:, None] * DV + cv[None, :]
        tl.atomic_add(to, weights[:, None] * grad[None, :], inside, sem="relaxed")
        of_key, is_inside = step[:, None] * query[None, :], is_edge[:, None] & (c < D)[None, :]
        tl.atomic_add(to_key + key_at[:, None] * D + c[None, :], of_key, is_inside, sem="relaxed")
        if q >= row.n_near:
            known = tl.maximum(rate + draw.extra, 1e-30)
            to_edge = tl.where(is_edge, -inputs.c * weights / known, 0.0) + tl.where(is_own, 1.0, 0.0)
            is_led, entries = is_edge | is_own, key_at * (4 * s.n_groups)
            for g in tl.static_range(tl.constexpr(s.n_groups)):
                x = part_rate(draw, rates, entries + 4 * g)
                y = part_rate(draw, rates, entries + 4 * g + 2)
                for i in tl.static_range(4):
                    e = entries + 4 * g + i
                    through = per_rate * to_edge * (y if i < 2 else x)
                    part = tl.load(draw.part + e)
                    tl.atomic_add(to_rate + part, through * tl.load(draw.weight + e), is_led, sem="relaxed")
                    tl.atomic_add(to_weight + e, through * tl.load(rates + part), is_led, sem="relaxed")
    tl.store(to_query + row.at * D + c, found, c < D)


@triton.jit
def _lead_total_back(draw, row, rates, to_rate, per_rate, s: tl.constexpr):
    """Passes the gradient of a row's rate to all clusters on to the row's rates to parts."""
    a, b = tl.arange(0, s.columns)[:, None], tl.arange(0, s.columns)[None, :]
    for g in range(s.n_groups):
        first, second = 2 * g * s.size, (2 * g + 1) * s.size
        mass = tl.load(draw.members.mass + row.table + (g * s.size + a) * s.size + b, (a < s.size) & (b < s.size), 0.0)
        x, y = tl.load(rates + first + a, a < s.size, 0.0), tl.load(rates + second + b, b < s.size, 0.0)
        to_first, to_second = tl.sum(mass * y, 1)[:, None], tl.sum(mass * x, 0)[None, :]
        tl.atomic_add(to_rate + first + a, per_rate * to_first, a < s.size, sem="relaxed")
        tl.atomic_add(to_rate + second + b, per_rate * to_second, b < s.size, sem="relaxed")


class DrawnAttention(torch.autograd.Function):
    """Attends along drawn edges; returns values, densities, expected densities estimated from edges, and the loss.

    The loss is that of :func:`sbmt.block_model.fit.fit_loss`. Its gradient reaches only rates and memberships, and the
    gradient of the values reaches everything else.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, sink: Tensor | None, rates: Tensor, weight: Tensor,
        draw: Draw, sizes: Sizes, smallest: float, c: float, is_fitted: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Computes the outputs; ``rates`` and ``weight`` are also in ``draw``, but need gradients."""
        d, d_value = query.shape[3], value.shape[3]
        by = d**-0.5, smallest, c
        widths = d, triton.next_power_of_2(d), d_value, triton.next_power_of_2(d_value)
        out = value.new_empty(*query.shape[:3], d_value)
        log_sum, of_rows = draw.weight.new_empty(out.shape[:3]), draw.weight.new_empty(5, *out.shape[:3])
        none = log_sum if sink is None else sink
        inputs = Inputs(strided(query), strided(key), strided(value), none, *by)
        grid, has_sink = (log_sum.numel(),), sink is not None
        _attend_kernel[grid](draw, inputs, strided(out), log_sum, of_rows, sizes, has_sink, *widths, TILE, num_warps=1)
        densities = log_sum.new_empty(2, *out.shape[:2])
        loss, per_query = log_sum.new_empty(()), log_sum.new_empty(())
        n_graphs = out.shape[0] * out.shape[1]
        _means_kernel[(1,)](of_rows.sum(3), densities, loss, per_query, n_graphs, is_fitted, GRAPHS)
        ctx.save_for_backward(query, key, value, sink, out, log_sum, per_query)
        ctx.rest = draw, sizes, by, widths
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*densities)
        return out, *densities, loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Draws the same edges again; sums over queries are atomic, so their order changes from call to call."""
        query, key, value, sink, out, log_sum, per_query = ctx.saved_tensors
        draw, sizes, by, widths = ctx.rest
        grad = torch.zeros_like(out) if grads[0] is None else grads[0]
        tables = draw.members.mass[:, :, 1:] if sizes.causal else draw.members.starts
        like = key, value, draw.rates, draw.weight, tables, draw.rates[0, :, 0, 0], per_query
        summed = log_sum.new_zeros(sum(x.numel() for x in like)).split([x.numel() for x in like])
        views = (x.view(y.shape) for x, y in zip(summed, like, strict=True))
        to_key, to_value, to_rates, to_weight, reached, to_sink, zero = views
        grad_loss = zero if grads[3] is None else grads[3]
        to_query, of_rows = torch.empty(query.shape, dtype=query.dtype, device=query.device), torch.empty_like(log_sum)
        none = log_sum if sink is None else sink
        inputs = Inputs(strided(query), strided(key), strided(value), none, *by)
        read = draw, inputs, strided(grad), grad_loss, per_query, strided(out), log_sum
        written = to_query, to_key, to_value, to_rates, to_weight, of_rows
        grid, has_sink = (log_sum.numel(),), sink is not None
        _attend_backward_kernel[grid](*read, *written, sizes, has_sink, *widths, TILE, num_warps=1)
        sums = (to_key, key), (to_value, value), (to_sink, to_sink if sink is None else sink)
        cast = [x if x.dtype == y.dtype else y.new_empty(y.shape) for x, y in sums]
        last = to_key, to_value, to_sink, to_weight
        finish_keys(draw, sizes, reached, of_rows, grad_loss, per_query, widths, *cast, *last)
        return to_query, *cast[:2], None if sink is None else cast[2], to_rates, to_weight, *(None,) * 5
