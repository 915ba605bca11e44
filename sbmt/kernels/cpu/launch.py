"""Runs the CPU kernels along rows on torch tensors."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu import attention, crossed, masks, poisson, products
from sbmt.kernels.cpu.graphs import totals
from sbmt.kernels.cpu.threads.parallel import balanced_parts, equal_parts, in_parallel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, CrossedFactors, Mask, as_arrays

CHUNKS = 4  # at least so many, over all graphs, whose gradients are summed first
_CHUNK = 2048  # tokens of a head whose gradients of the map to logits are summed first
_FUNCTIONS = 16  # multiplications that an exponential or a logarithm of an edge counts for


class Gradients(NamedTuple):
    """What the backward pass along rows writes."""

    query: Tensor
    score: Tensor  # per edge, of q·k
    gate: Tensor  # per edge
    bias: Tensor  # per edge, or of length 0 where nobody needs it
    sink: Tensor  # per row, or of length 0 without sinks
    weight: Tensor  # per edge, not a gradient: the weight of its value, which the gradients of values need


def attend(inputs: AttentionInputs, mask: Mask, is_score_rule: bool, return_weights: bool) -> AttentionResults:
    """Attention. The logarithms of denominators are float64, since float32 would lose digits of large scores."""
    query, value = inputs.query, inputs.value
    log_total = query.new_empty(query.shape[0], dtype=torch.float64)
    weights = query.new_empty(mask.keys.shape if return_weights else 0)
    results = AttentionResults(value.new_empty(query.shape[0], value.shape[1]), log_total, weights)
    _run(attention.attend_rows, mask.row_ptr, _work_per_edge(inputs), inputs, mask, is_score_rule, results)
    return results


def attend_backward(
    grad_out: Tensor,
    grad_weights: Tensor,
    results: AttentionResults,
    inputs: AttentionInputs,
    mask: Mask,
    _: ByKey,
    is_score_rule: bool,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, gate, bias and sink. Only GPUs need the edges by key."""
    query, gate, sink = inputs.query, inputs.gate, inputs.sink
    per_edge, per_row = query.new_empty(mask.keys.shape), sink.new_zeros(query.shape[0] if sink.numel() else 0)
    bias = torch.empty_like(per_edge) if needs_bias else per_edge.new_empty(0)
    to_weight = torch.empty_like(per_edge)
    grads = Gradients(torch.empty_like(query), per_edge, torch.empty_like(gate), bias, per_row, to_weight)
    given = inputs, mask, is_score_rule, results, grad_out, grad_weights, grads
    _run(attention.differentiate_rows, mask.row_ptr, _work_per_edge(inputs), *given)
    grad_key, grad_value = (sum_over_queries(*of, mask) for of in ((grads.score, query), (grads.weight, grad_out)))
    grad_sink = per_row.view(-1, sink.numel(), mask.n_queries).sum((0, 2)) if sink.numel() else per_row
    return grads.query, grad_key, grad_value, grads.gate, grads.bias, grad_sink


def dots(query: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    out = query.new_empty(mask.keys.shape)
    _run(products.dots_along_rows, mask.row_ptr, query.shape[1], query, key, mask, 0, out)
    return out


def sum_over_keys(weights: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """Σ_j w_ij key_j for every query i."""
    out = key.new_empty(mask.row_ptr.numel() - 1, key.shape[1])
    _run(products.sum_rows, mask.row_ptr, key.shape[1], weights, key, mask, 0, out)
    return out


def sum_over_queries(weights: Tensor, query: Tensor, mask: Mask, _: ByKey | None = None) -> Tensor:
    """Σ_i w_ij query_i for every key j. A graph's keys are divided where there are fewer graphs than threads."""
    n_graphs, threads = (mask.row_ptr.numel() - 1) // mask.n_queries, torch.get_num_threads()
    n_parts = min(threads // math.gcd(threads, n_graphs), -(-2 * threads // max(n_graphs, 1)))
    out = query.new_empty(n_graphs * mask.n_keys, query.shape[1])
    bounds = equal_parts(n_graphs * n_parts, weights.numel() * query.shape[1] // max(n_graphs * n_parts, 1))
    in_parallel(products.sum_columns, bounds * mask.n_keys // n_parts, *map(as_arrays, (weights, query, mask, out)))
    return out


def transpose(mask: Mask) -> ByKey:
    """See :attr:`sbmt.EdgeList.by_key`."""
    row_ptr, keys, n_queries, n_keys = mask
    n_graphs, n_edges = (row_ptr.numel() - 1) // n_queries, keys.numel()
    by_key = ByKey(
        row_ptr.new_empty(n_graphs * n_keys + 1), *(torch.empty(n_edges, dtype=torch.int32) for _ in range(2))
    )
    by_key.column_ptr[-1] = n_edges
    parts = equal_parts(n_graphs, 4 * (n_edges // n_graphs + n_queries + n_keys))
    in_parallel(masks.transpose_graphs, parts, as_arrays(mask), as_arrays(by_key))
    return by_key


def merge(first_ptr: Tensor, first_keys: Tensor, second_ptr: Tensor, second_keys: Tensor) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges that are in either mask."""
    both = first_ptr, first_keys, second_ptr, second_keys
    row_ptr, both_ptr = torch.zeros_like(first_ptr), first_ptr + second_ptr
    _run(masks.count_union, both_ptr, 8, *both, row_ptr[1:])
    row_ptr = row_ptr.cumsum(0)
    keys = first_keys.new_empty(int(row_ptr[-1]))
    _run(masks.fill_union, both_ptr, 8, *both, row_ptr, keys)
    return row_ptr, keys


def with_window(
    mask: Mask, reach: int, heads: int, query_mask: Tensor | None, key_mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of these edges and those between real tokens at most ``reach`` places apart."""
    batch = (mask.row_ptr.numel() - 1) // (heads * mask.n_queries)
    real = tuple(
        torch.ones(batch, n, dtype=torch.bool) if given is None else given.contiguous()
        for n, given in ((mask.n_queries, query_mask), (mask.n_keys, key_mask))
    )
    row_ptr = torch.zeros_like(mask.row_ptr)
    _run(masks.count_with_window, mask.row_ptr, 8, mask, reach, heads, real, row_ptr[1:])
    row_ptr = row_ptr.cumsum(0)
    keys = mask.keys.new_empty(int(row_ptr[-1]))
    _run(masks.fill_with_window, row_ptr, 8, mask, reach, heads, real, row_ptr, keys)
    return row_ptr, keys


def repeat(mask: Mask, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of each graph as often as it has heads, and which edge each is a copy of."""
    n_copies, n_edges = heads * (mask.row_ptr.numel() - 1) // mask.n_queries, heads * mask.keys.numel()
    row_ptr = mask.row_ptr.new_empty(n_copies * mask.n_queries + 1)
    row_ptr[-1] = n_edges
    keys, source = mask.keys.new_empty(n_edges), mask.keys.new_empty(n_edges)
    parts = equal_parts(n_copies, 4 * (n_edges // n_copies + mask.n_queries))
    in_parallel(masks.repeat_graphs, parts, as_arrays(mask), heads, *map(as_arrays, (row_ptr, keys, source)))
    return row_ptr, keys, source


def near(mask: Mask, reach: int) -> Tensor:
    """Whether each edge joins tokens at most ``reach`` places apart."""
    out = torch.empty(mask.keys.shape, dtype=torch.bool)
    _run(masks.mark_near, mask.row_ptr, 1, mask, reach, out)
    return out


def part_memberships(
    query: Tensor, key: Tensor, matrix: Tensor, n_partitions: int, n_active: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How much each query belongs to its parts, and which they are; then each key."""
    memberships = [x.new_empty(*x.shape[:3], n_partitions * n_active) for x in (query, key)]
    of_query, of_key = memberships
    query_part, key_part = (torch.empty_like(x, dtype=torch.int16) for x in memberships)
    both = (query.contiguous(), of_query, query_part), (key.contiguous(), of_key, key_part)
    given = (matrix.contiguous(), *(tuple(t.flatten(0, 1) for t in one) for one in both))
    n_graphs = max(batch * heads for batch, heads, _, _ in (query.shape, key.shape))
    n_tokens = n_graphs * (query.shape[2] + key.shape[2])
    parts = equal_parts(n_tokens, matrix.shape[1] * matrix.shape[2])
    in_parallel(crossed.choose_parts, parts, (0,) * n_active, *map(as_arrays, given))
    return of_query, query_part, of_key, key_part


def part_memberships_backward(
    grads: tuple[Tensor, Tensor],
    tokens: tuple[Tensor, Tensor],
    matrix: Tensor,
    memberships: list[Tensor],
    n_partitions: int,
    needs_tokens: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries and keys (of length 0 unless they are needed) and of the matrix."""
    centres, n_chosen = matrix[:, :-1].mT.contiguous(), grads[0].shape[3]
    (heads, n_parts, width), n_active = centres.shape, n_chosen // n_partitions
    of_tokens = [torch.empty_like(x) if needs_tokens else x.new_empty(0, 0, 0, width) for x in tokens]
    both = zip(grads, tokens, memberships[::2], memberships[1::2], of_tokens, strict=True)
    given = (tuple(t.contiguous().flatten(0, 1) for t in one) for one in both)
    n_chunks = sum(-(-x.shape[0] * x.shape[2] // _CHUNK) for x in tokens)
    of_centres, of_constant = (matrix.new_empty(heads, n_chunks, n_parts, *more) for more in ((width,), ()))
    into = *given, centres, of_centres, of_constant
    parts = equal_parts(heads * n_chunks, _CHUNK * n_chosen * width)
    in_parallel(crossed.differentiate_memberships, parts, (0,) * n_active, _CHUNK, *map(as_arrays, into))
    of_query, of_key = of_tokens if needs_tokens else (x.new_empty(0) for x in tokens)
    return of_query, of_key, torch.cat([of_centres.sum(1).mT, of_constant.sum(1)[:, None]], 1)


def crossed_rates(factors: CrossedFactors, mask: Mask) -> Tensor:
    """The rates of a mask's edges."""
    out = factors.query_weight.new_empty(mask.keys.shape)
    _run(crossed.rates_along_rows, mask.row_ptr, factors.key_part.shape[1], active_parts(factors), factors, mask, out)
    return out


def crossed_rates_backward(grad: Tensor, factors: CrossedFactors, mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries' weights, S and the keys' weights."""
    blocks, n_graphs = factors.blocks, factors.query_weight.shape[0] // mask.n_queries
    n_chunks = max(1, CHUNKS // n_graphs)
    of_blocks = blocks.new_empty(n_graphs * n_chunks, *blocks.shape[1:])
    of_query, of_key = torch.empty_like(factors.query_weight), grad.new_empty(n_chunks, *factors.key_weight.shape)
    first = np.arange(n_graphs * n_chunks + 1) * mask.n_queries // n_chunks
    parts = balanced_parts(mask.row_ptr.numpy()[first], 4 * factors.key_part.shape[1])
    given = grad, active_parts(factors), factors, mask, of_query, of_blocks, of_key
    in_parallel(crossed.differentiate_rates, parts, *map(as_arrays, given))
    of_blocks = of_blocks.unflatten(0, (-1, blocks.shape[0], n_chunks)).sum((0, 2))
    return of_query, of_blocks, of_key.sum(0) if n_chunks > 1 else of_key[0]


def active_parts(factors: CrossedFactors) -> tuple[int, ...]:
    """What kernels call ``active``."""
    return (0,) * (factors.key_part.shape[1] // factors.blocks.shape[1])


def pair_totals(part: Tensor, weight: Tensor, n_partitions: int, size: int, n_graphs: int) -> Tensor:
    """How much the tokens of each graph are in every pair of parts."""
    out = weight.new_empty(n_graphs, n_partitions // 2, size, size)
    n_tokens = part.shape[0] // n_graphs
    given = (0,) * (part.shape[1] // n_partitions), *map(as_arrays, (part, weight)), n_tokens, out.numpy()
    in_parallel(crossed.sum_pairs, equal_parts(n_graphs, 4 * n_tokens * part.shape[1]), *given)
    return out


def pair_totals_backward(grad: Tensor, part: Tensor, weight: Tensor, n_partitions: int) -> Tensor:
    """The gradient of the weights."""
    of_weight = torch.zeros_like(weight)
    active, n_tokens = (0,) * (part.shape[1] // n_partitions), part.shape[0] // grad.shape[0]
    given = active, *map(as_arrays, (grad, part, weight)), n_tokens, of_weight.numpy()
    in_parallel(crossed.differentiate_pairs, equal_parts(part.shape[0], 2 * part.shape[1]), *given)
    return of_weight


def weigh(rate: Tensor, mask: Mask, exploration: float, reach: int, smallest: float) -> tuple[Tensor, Tensor]:
    """What edges that were drawn by the Poisson law weigh, and how many each graph expects."""
    bias, expected = torch.empty_like(rate), rate.new_empty(mask.row_ptr.numel() - 1)
    _run(poisson.weigh_rows, mask.row_ptr, _FUNCTIONS, rate, mask, exploration, reach, smallest, bias, expected)
    return bias, totals(expected, mask.n_queries)


def gain(rate: Tensor, weights: Tensor, mask: Mask, exploration: float, reach: int) -> tuple[Tensor, Tensor]:
    """How well rates explain the weights of edges, and the gradient of that."""
    of_row, of_rate = rate.new_empty(mask.row_ptr.numel() - 1), torch.empty_like(rate)
    given = rate, weights, mask, exploration, reach, of_row, of_rate
    _run(poisson.sum_gains, mask.row_ptr, _FUNCTIONS, *given)
    return of_row.sum(), of_rate


def _run(kernel: Callable[..., Any], row_ptr: Tensor, work_per_edge: int, *arguments: Any) -> None:
    """Runs a kernel on all rows, in parts that hold about equally many edges."""
    in_parallel(kernel, balanced_parts(row_ptr.numpy(), work_per_edge), *map(as_arrays, arguments))


def _work_per_edge(inputs: AttentionInputs) -> int:
    return 2 * (inputs.key.shape[1] + inputs.value.shape[1])
