"""Kernels along rows, called with torch tensors."""

import torch
from torch import Tensor

from sbmt.kernels.gpu import accumulator
from sbmt.kernels.gpu.rows import attention as row_attention
from sbmt.kernels.gpu.rows import sums as row_sums
from sbmt.kernels.gpu.rows.pieces import Pieces, cut_rows

EDGES = 32  # at a time: a warp fetches their keys at once
ATTEND_WIDTH, SUM_WIDTH = 64, 128  # of a vector, per warp

Mask = tuple[Tensor, Tensor]
"""``row_ptr`` and ``keys``, or by key ``column_ptr`` and ``queries``."""
Sizes = tuple[int, int]
"""``n_queries`` and ``n_keys``."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gate: Tensor,
    weight_scale: Tensor,
    mask: Mask,
    sizes: Sizes,
    is_score_rule: bool,
) -> tuple[Tensor, Tensor]:
    """The output, and the logarithm of each row's softmax denominator in float64; empty gate or scale means ones."""
    n_rows, d_value = query.shape[0], value.shape[1]
    out = value.new_empty(n_rows, d_value)
    log_total = query.new_empty(n_rows, dtype=torch.float64)
    pieces = cut_rows(mask[0], mask[1].numel())
    part = value.new_empty(pieces.n_slots, d_value, dtype=accumulator(value))
    part_log_total = log_total.new_empty(pieces.n_slots)
    inputs = (query, key, value, _unless_empty(gate), _unless_empty(weight_scale), *mask, *_pointers(pieces))
    found = (out, log_total, part, part_log_total)
    about = _block(pieces, max(query.shape[1], d_value), ATTEND_WIDTH) | {"D": query.shape[1], "D_VALUE": d_value}
    row_attention.attend[pieces.grid](*inputs, *found, n_rows, *sizes, **about, IS_SCORE_RULE=is_score_rule)
    row_attention.join_softmax[(n_rows,)](*found, pieces.slot_ptr, D_VALUE=d_value, num_warps=1)
    return out, log_total


def attend_backward(
    grad_out: Tensor,
    out: Tensor,
    log_total: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gate: Tensor,
    weight_scale: Tensor,
    mask: Mask,
    by_key: tuple[Tensor, Tensor, Tensor],
    sizes: Sizes,
    is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and gate."""
    n_rows, dtype = query.shape[0], accumulator(value)
    grad_out = grad_out.contiguous()
    grad_query, grad_gate = torch.empty_like(query), torch.empty_like(gate)
    grad_score, weights = (query.new_empty(mask[1].shape, dtype=dtype) for _ in range(2))  # per edge
    pieces = cut_rows(mask[0], mask[1].numel())
    part = query.new_empty(pieces.n_slots, query.shape[1], dtype=dtype)
    inputs = (query, key, value, _unless_empty(gate), _unless_empty(weight_scale), *mask, *_pointers(pieces))
    found = (out, log_total, grad_out, grad_query, part, grad_score, grad_gate, weights)
    widths = {"D": query.shape[1], "D_VALUE": value.shape[1]}
    about = _block(pieces, max(widths.values()), ATTEND_WIDTH) | widths
    row_attention.attend_backward[pieces.grid](*inputs, *found, n_rows, *sizes, **about, IS_SCORE_RULE=is_score_rule)
    row_sums.join_sums[(n_rows,)](grad_query, part, pieces.slot_ptr, WIDTH=query.shape[1], num_warps=1)
    grad_key = sum_over_queries(grad_score, query, by_key, mask[0], sizes, key.dtype)
    grad_value = sum_over_queries(weights, grad_out, by_key, mask[0], sizes, value.dtype)
    return grad_query, grad_key, grad_value, grad_gate


def dots(query: Tensor, key: Tensor, mask: Mask, sizes: Sizes) -> Tensor:
    """⟨query, key⟩ of every edge."""
    out = query.new_empty(mask[1].shape)
    pieces = cut_rows(mask[0], mask[1].numel())
    about = _block(pieces, query.shape[1], SUM_WIDTH) | {"WIDTH": query.shape[1]}
    row_sums.dots_along[pieces.grid](query, key, *mask, *_pointers(pieces), out, query.shape[0], *sizes, **about)
    return out


def sum_over_keys(weights: Tensor, key: Tensor, mask: Mask, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    """Σ_j w_ij y_j of every query."""
    return _sum(weights, key, mask, (None, None), sizes, dtype)


def sum_over_queries(
    weights: Tensor,
    query: Tensor,
    by_key: tuple[Tensor, Tensor, Tensor],
    row_ptr: Tensor,
    sizes: Sizes,
    dtype: torch.dtype,
) -> Tensor:
    """Σ_i w_ij x_i of every key."""
    column_ptr, queries, positions = by_key
    return _sum(weights, query, (column_ptr, queries), (positions, row_ptr), (sizes[1], sizes[0]), dtype)


def _sum(
    weights: Tensor,
    vectors: Tensor,
    mask: Mask,
    places: tuple[Tensor | None, Tensor | None],
    sizes: Sizes,
    dtype: torch.dtype,
) -> Tensor:
    n_rows, width = mask[0].numel() - 1, vectors.shape[1]
    out = vectors.new_empty(n_rows, width, dtype=dtype)
    pieces = cut_rows(mask[0], mask[1].numel())
    part = vectors.new_empty(pieces.n_slots, width, dtype=accumulator(out))
    arguments = (weights, vectors, *mask, *places, *_pointers(pieces), out, part, n_rows, *sizes)
    row_sums.sum_along[pieces.grid](*arguments, WIDTH=width, **_block(pieces, width, SUM_WIDTH))
    row_sums.join_sums[(n_rows,)](out, part, pieces.slot_ptr, WIDTH=width, num_warps=1)
    return out


def _pointers(pieces: Pieces) -> tuple[Tensor, Tensor, Tensor]:
    return pieces.row, pieces.ptr, pieces.slot_ptr


def _unless_empty(per_edge: Tensor) -> Tensor | None:
    return per_edge if per_edge.numel() else None


def _block(pieces: Pieces, width: int, per_warp: int) -> dict[str, int]:
    """Edges at a time, and so many warps that their vectors, ``per_warp`` numbers wide, fit into registers."""
    columns = 1 << (width - 1).bit_length()
    return {"PIECE": pieces.size, "EDGES": EDGES, "num_warps": max(1, columns // per_warp)}
