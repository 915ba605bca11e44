"""Launches the GPU kernels along rows on torch tensors."""

import torch
from torch import Tensor

from sbmt.kernels.gpu.rows import attention as row_attention
from sbmt.kernels.gpu.rows import poisson
from sbmt.kernels.gpu.rows import sums as row_sums
from sbmt.kernels.gpu.rows.pieces import Pieces, cut_rows
from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, Mask
from sbmt.precision import accumulator

EDGES = 32  # at a time: a warp fetches their keys at once
ATTEND_WIDTH, SUM_WIDTH = 64, 128  # numbers of a vector that each warp holds


def attend(inputs: AttentionInputs, mask: Mask, is_score_rule: bool, return_weights: bool) -> AttentionResults:
    """Attention, with the logarithm of each row's softmax denominator, and weights if they are wanted."""
    n_rows, d, d_value = inputs.query.shape[0], inputs.query.shape[1], inputs.value.shape[1]
    out = inputs.value.new_empty(n_rows, d_value)
    log_total = inputs.query.new_empty(n_rows, dtype=torch.float64)
    pieces = cut_rows(mask)
    part = out.new_empty(pieces.n_slots, d_value, dtype=accumulator(out))
    scores = part.new_empty(mask.keys.shape if return_weights else 0)
    found = (out, log_total, part, log_total.new_empty(pieces.n_slots))
    options = _block(pieces, max(d, d_value), ATTEND_WIDTH) | {"D": d, "D_VALUE": d_value}
    program = row_attention.attend[pieces.grid]
    pointers = *_pointers(inputs, mask, pieces), *found, _or_none(scores)
    program(*pointers, *_sizes(mask), **options, IS_SCORE_RULE=is_score_rule)
    row_attention.join_softmax[(n_rows,)](*found, pieces.slot_ptr, D_VALUE=d_value, num_warps=1)
    if return_weights:
        of_edges = log_total.repeat_interleave(mask.row_ptr.diff(), output_size=scores.numel())
        scores = (scores - of_edges).exp().to(scores.dtype)
    return AttentionResults(out, log_total, scores)


def attend_backward(
    grad_out: Tensor,
    grad_weights: Tensor,
    results: AttentionResults,
    inputs: AttentionInputs,
    mask: Mask,
    by_key: ByKey,
    is_score_rule: bool,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, gate, bias and sink."""
    query, key, value, gate, bias, sink, _ = inputs
    n_rows, d, d_value, dtype = query.shape[0], query.shape[1], value.shape[1], accumulator(value)
    grad_query, grad_gate = torch.empty_like(query), torch.empty_like(gate)
    grad_bias = torch.empty_like(bias) if needs_bias else bias.new_empty(0)
    grad_sink = sink.new_zeros(n_rows if sink.numel() else 0)  # per row
    mean_of_grad = None
    if grad_weights.numel():
        mean_of_grad = torch.segment_reduce(results.weights * grad_weights, "sum", offsets=mask.row_ptr)
    grad_score, weights = (query.new_empty(mask.keys.shape, dtype=dtype) for _ in range(2))  # per edge
    pieces = cut_rows(mask)
    part = query.new_empty(pieces.n_slots, d, dtype=dtype)
    given = *results[:2], grad_out, _or_none(grad_weights), mean_of_grad
    found = grad_query, part, grad_score, grad_gate, _or_none(grad_bias), _or_none(grad_sink), weights
    options = _block(pieces, max(d, d_value), ATTEND_WIDTH) | {"D": d, "D_VALUE": d_value}
    program = row_attention.attend_backward[pieces.grid]
    pointers = *_pointers(inputs, mask, pieces), *given, *found
    program(*pointers, *_sizes(mask), **options, IS_SCORE_RULE=is_score_rule)
    row_sums.join_sums[(n_rows,)](grad_query, part, pieces.slot_ptr, WIDTH=d, num_warps=1)
    grad_key = sum_over_queries(grad_score, query, mask, by_key, key.dtype)
    grad_value = sum_over_queries(weights, grad_out, mask, by_key, value.dtype)
    grad_sink = grad_sink.view(-1, sink.numel(), mask.n_queries).sum((0, 2)) if sink.numel() else grad_sink
    return grad_query, grad_key, grad_value, grad_gate, grad_bias, grad_sink


def dots(query: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    out = query.new_empty(mask.keys.shape)
    pieces = cut_rows(mask)
    options = _block(pieces, query.shape[1], SUM_WIDTH) | {"WIDTH": query.shape[1]}
    row_sums.dots_along[pieces.grid](query, key, *mask[:2], *pieces.pointers, out, *_sizes(mask), **options)
    return out


def sum_over_keys(weights: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """Σ_j w_ij key_j for every query i."""
    return _sum(weights, key, mask, (None, None), key.dtype)


def sum_over_queries(
    weights: Tensor, query: Tensor, mask: Mask, by_key: ByKey, dtype: torch.dtype | None = None
) -> Tensor:
    """Σ_i w_ij query_i for every key j, of the queries' type unless another is given."""
    transposed = Mask(by_key.column_ptr, by_key.queries, mask.n_keys, mask.n_queries)
    return _sum(weights, query, transposed, (by_key.positions, mask.row_ptr), dtype or query.dtype)


def weigh(rate: Tensor, mask: Mask, exploration: float, reach: int, smallest: float) -> tuple[Tensor, Tensor]:
    """What edges that were drawn by the Poisson law weigh, and how many each graph expects."""
    bias, expected = torch.empty_like(rate), rate.new_empty(mask.row_ptr.numel() - 1)
    given = rate, *mask[:2], rate.new_full((1,), exploration), bias, expected, mask.n_queries, reach
    options = {"TINY": torch.finfo(rate.dtype).tiny, "SMALLEST": smallest, "EDGES": EDGES, "num_warps": 1}
    poisson.weigh[(expected.numel(),)](*given, **options)
    return bias, expected.view(-1, mask.n_queries).sum(1)


def gain(rate: Tensor, weights: Tensor, mask: Mask, exploration: float, reach: int) -> tuple[Tensor, Tensor]:
    """How well rates explain the weights of edges, and the gradient of that."""
    of_row, of_rate = rate.new_empty(mask.row_ptr.numel() - 1), torch.empty_like(rate)
    given = rate, weights, *mask[:2], rate.new_full((1,), exploration), of_row, of_rate, mask.n_queries, reach
    poisson.gain[(of_row.numel(),)](*given, TINY=torch.finfo(rate.dtype).tiny, EDGES=EDGES, num_warps=1)
    return of_row.sum(), of_rate


def _sum(
    weights: Tensor, vectors: Tensor, mask: Mask, places: tuple[Tensor | None, Tensor | None], dtype: torch.dtype
) -> Tensor:
    """Weighted sums along rows; ``places`` locates weights that are not in the mask's order, see ``sum_along``."""
    n_rows, width = mask.row_ptr.numel() - 1, vectors.shape[1]
    out = vectors.new_empty(n_rows, width, dtype=dtype)
    pieces = cut_rows(mask)
    part = vectors.new_empty(pieces.n_slots, width, dtype=accumulator(out))
    arguments = (weights, vectors, *mask[:2], *places, *pieces.pointers, out, part, *_sizes(mask))
    row_sums.sum_along[pieces.grid](*arguments, WIDTH=width, **_block(pieces, width, SUM_WIDTH))
    row_sums.join_sums[(n_rows,)](out, part, pieces.slot_ptr, WIDTH=width, num_warps=1)
    return out


def _pointers(inputs: AttentionInputs, mask: Mask, pieces: Pieces) -> tuple[Tensor | None, ...]:
    """The first arguments of both kernels of attention, for which each graph has a sink of its own."""
    n_graphs, sink = inputs.query.shape[0] // mask.n_queries, inputs.sink
    sinks = sink.repeat(n_graphs // sink.numel()) if sink.numel() else sink
    of_edges = map(_or_none, (inputs.gate, inputs.bias, sinks, inputs.weight_scale))
    return *inputs[:3], *of_edges, *mask[:2], *pieces.pointers


def _or_none(numbers: Tensor) -> Tensor | None:
    """None for a tensor of length 0, which kernels cannot tell from others."""
    return numbers if numbers.numel() else None


def _sizes(mask: Mask) -> tuple[int, int, int]:
    return mask.row_ptr.numel() - 1, mask.n_queries, mask.n_keys


def _block(pieces: Pieces, width: int, per_warp: int) -> dict[str, int]:
    """How many edges a program handles at a time, and how many warps hold vectors of that width."""
    columns = 1 << (width - 1).bit_length()
    return {"PIECE": pieces.size, "EDGES": EDGES, "num_warps": max(1, columns // per_warp)}
