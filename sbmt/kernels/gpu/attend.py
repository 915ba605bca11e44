"""Attention along edges while they are drawn: neither edges nor weights are written, and the backward pass draws again.

The plain twin is :func:`sbmt.attention.dense.attend_dense` along the edges of
:func:`~sbmt.kernels.gpu.draw.list_edges`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.draw import TILE, Draw, Sizes, edge_probability, enter_row, rates_by_part, visit_tile


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
    row = enter_row(draw, s, TILE)
    ends = tl.cumsum(rates_by_part(draw, row, s), 0)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(inputs.query + row.at * D + c, c < D, 0.0).to(real)
    most, below = tl.full([], -float("inf"), real), tl.full([], 0.0, real)
    if HAS_SINK:
        most, below = tl.load(inputs.sink + row.head).to(real), below + 1
    value, gain, degree, share = tl.zeros([WIDTH_V], real), below * 0, 0, below * 0
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with = visit_tile(draw, row, ends, q, s, TILE)
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
            share += tl.sum(tl.where(is_edge, edge_probability(rate) / tl.maximum(drawn_with, 1e-30), 0.0), 0)
        else:
            share += tl.sum(tl.where(is_edge, edge_probability(rate), 0.0), 0)
        degree += tl.sum(is_edge.to(tl.int32), 0)
        most = largest
    is_any = below > 0
    divisor = tl.where(is_any, below, 1.0)
    tl.store(out + row.at * DV + cv, value / divisor, cv < DV)
    tl.store(log_sum + row.at, tl.where(is_any, most + tl.log(divisor), 0.0))
    tl.store(degrees + row.at, degree)
    tl.store(shares + row.at, share)
    tl.store(gained + row.at, gain / divisor)


@triton.jit
def _attend_backward_kernel(
    draw, inputs, grad_out, grad_gained, log_sum, delta, to_query, to_key, to_value, to_rates, to_weight,
    s: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr, WIDTH_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = enter_row(draw, s, TILE)
    ends = tl.cumsum(rates_by_part(draw, row, s), 0)
    real = draw.weight.dtype.element_ty
    c, cv = tl.arange(0, WIDTH), tl.arange(0, WIDTH_V)
    query = tl.load(inputs.query + row.at * D + c, c < D, 0.0).to(real)
    grad = tl.load(grad_out + row.at * DV + cv, cv < DV, 0.0).to(real)
    found = tl.zeros([WIDTH], real)
    rates, to_rate = draw.rates + row.at * (2 * s.n_groups * s.size), to_rates + row.at * (2 * s.n_groups * s.size)
    for q in range(row.n_tiles):
        keys, is_edge, rate, drawn_with = visit_tile(draw, row, ends, q, s, TILE)
        scores, key = _scores(draw, row, inputs, query, keys, is_edge, drawn_with, D, WIDTH)
        weights = tl.exp(scores - tl.load(log_sum + row.at))
        key_at = row.graph * draw.n_keys + keys
        at_value, inside = key_at[:, None] * DV + cv[None, :], is_edge[:, None] & (cv < DV)[None, :]
        values = tl.load(inputs.value + at_value, inside, 0.0).to(real)
        step = weights * (tl.sum(values * grad[None, :], 1) - tl.load(delta + row.at)) * inputs.scale
        found += tl.sum(step[:, None] * key, 0)
        tl.atomic_add(to_value + at_value, weights[:, None] * grad[None, :], inside, sem="relaxed")
        at_key = key_at[:, None] * D + c[None, :]
        of_key, is_inside = step[:, None] * query[None, :], is_edge[:, None] & (c < D)[None, :]
        tl.atomic_add(to_key + at_key, of_key, is_inside, sem="relaxed")
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
        """Rates and weights are those in ``draw``, given for their gradients."""
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
        """Draws the same edges again; sums over queries are atomic, so their order changes from call to call."""
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
        if sink is not None:  # delta is 0 in rows without edges
            to_sink = -((sink[:, None] - log_sum).exp() * delta).sum((0, 2)).to(sink.dtype)
        return to_query, to_key.to(key.dtype), to_value.to(value.dtype), to_sink, to_rates, to_weight, *(None,) * 3
