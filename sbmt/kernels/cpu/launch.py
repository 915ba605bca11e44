"""Runs the CPU kernels along rows on torch tensors."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sbmt.kernels.cpu import attention, few_clusters, masks, products
from sbmt.kernels.cpu.parallel import balanced_parts, equal_parts, in_parallel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, FewClusters, Mask, as_arrays

_CHUNK = 2048  # rows of a head whose gradients of clusters and of S are summed first
_SCORES_AT_ONCE = 1 << 20  # scores of clusters that are formed at a time


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
    by_key: ByKey,
    is_score_rule: bool,
    needs_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, gate, bias and sink."""
    query, gate, sink = inputs.query, inputs.gate, inputs.sink
    per_edge, per_row = query.new_empty(mask.keys.shape), sink.new_zeros(query.shape[0] if sink.numel() else 0)
    bias = torch.empty_like(per_edge) if needs_bias else per_edge.new_empty(0)
    to_weight = torch.empty_like(per_edge)
    grads = Gradients(torch.empty_like(query), per_edge, torch.empty_like(gate), bias, per_row, to_weight)
    given = inputs, mask, is_score_rule, results, grad_out, grad_weights, grads
    _run(attention.differentiate_rows, mask.row_ptr, _work_per_edge(inputs), *given)
    grad_key = sum_over_queries(grads.score, query, mask, by_key)
    grad_value = sum_over_queries(grads.weight, grad_out, mask, by_key)
    grad_sink = per_row.view(sink.shape[0], -1).sum(1) if sink.numel() else per_row
    return grads.query, grad_key, grad_value, grads.gate, grads.bias, grad_sink


def dots(query: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    out = query.new_empty(mask.keys.shape)
    _run(products.dots_along_rows, mask.row_ptr, query.shape[1], query, key, mask, out)
    return out


def sum_over_keys(weights: Tensor, key: Tensor, mask: Mask) -> Tensor:
    """Σ_j w_ij key_j for every query i."""
    out = key.new_empty(mask.row_ptr.numel() - 1, key.shape[1])
    _run(products.sum_rows, mask.row_ptr, key.shape[1], weights, key, mask, out)
    return out


def sum_over_queries(weights: Tensor, query: Tensor, mask: Mask, by_key: ByKey) -> Tensor:
    """Σ_i w_ij query_i for every key j."""
    out = query.new_empty(by_key.column_ptr.numel() - 1, query.shape[1])
    _run(products.sum_columns, by_key.column_ptr, query.shape[1], weights, query, mask, by_key, out)
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


def choose_clusters(nodes: Tensor, clusters: Tensor, n_groups: int, n_active: int) -> tuple[Tensor, Tensor]:
    """The clusters of each node, and how much it belongs to each."""
    heads, n_rows, _ = nodes.shape
    chosen = nodes.new_empty((heads, n_rows, n_groups * n_active), dtype=torch.int64)
    weight = nodes.new_empty(chosen.shape)
    at_once = max(1, _SCORES_AT_ONCE // clusters.shape[1])
    for head in range(heads):
        for rows in torch.arange(n_rows).split(at_once):
            part = slice(int(rows[0]), int(rows[-1]) + 1)
            scores = nodes[head, part] @ clusters[head].T
            into = chosen[head, part].numpy(), weight[head, part].numpy()
            in_parallel(few_clusters.choose_clusters, equal_parts(*scores.shape), scores.numpy(), n_groups, *into)
    return chosen, weight


def few_memberships_backward(
    grad: Tensor, nodes: Tensor, clusters: Tensor, chosen: Tensor, weight: Tensor, n_groups: int
) -> tuple[Tensor, Tensor]:
    """Gradients of nodes and clusters."""
    heads, n_rows, width = nodes.shape
    n_chunks = -(-n_rows // _CHUNK)
    of_nodes, of_clusters = torch.empty_like(nodes), grad.new_empty(heads, n_chunks, *clusters.shape[1:])
    given = [as_arrays(t.detach()) for t in (grad, nodes, clusters, chosen, weight)]
    parts = equal_parts(heads * n_chunks, _CHUNK * 2 * chosen.shape[2] * width)
    into = of_nodes.numpy(), of_clusters.numpy()
    in_parallel(few_clusters.differentiate_memberships, parts, *given, n_groups, _CHUNK, *into)
    return of_nodes, of_clusters.sum(1)


def few_cluster_rates(tokens: FewClusters, mask: Mask) -> Tensor:
    """The rates of a mask's edges."""
    out = tokens.query_weight.new_empty(mask.keys.shape)
    parts = balanced_parts(mask.row_ptr.numpy(), _work_per_row(tokens))
    in_parallel(few_clusters.rates_along_rows, parts, *map(as_arrays, (tokens, mask, out)))
    return out


def few_cluster_rates_backward(
    grad: Tensor, tokens: FewClusters, mask: Mask, by_key: ByKey
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries' weights, the blocks and the keys' weights."""
    heads, n_groups, size, _ = tokens.blocks.shape
    n_chunks = max(1, -(-(mask.row_ptr.numel() - 1) // (heads * _CHUNK)))
    of_blocks = grad.new_empty(heads, n_chunks, n_groups, size, size)
    of_query, of_key = torch.empty_like(tokens.query_weight), torch.empty_like(tokens.key_weight)
    of_edges, tokens_, mask_, by_key_ = map(as_arrays, (grad, tokens, mask, by_key))
    parts = equal_parts(heads * n_chunks, _CHUNK * _work_per_row(tokens))
    into = of_query.numpy(), of_blocks.numpy()
    in_parallel(few_clusters.differentiate_queries, parts, of_edges, tokens_, mask_, _CHUNK, *into)
    transposed = as_arrays(tokens._replace(blocks=tokens.blocks.mT.contiguous()))
    parts = balanced_parts(by_key.column_ptr.numpy(), _work_per_row(tokens))
    in_parallel(few_clusters.differentiate_keys, parts, of_edges, transposed, mask_, by_key_, of_key.numpy())
    return of_query, of_blocks.sum(1), of_key


def _run(kernel: Callable[..., Any], row_ptr: Tensor, work_per_edge: int, *arguments: Any) -> None:
    """Runs a kernel on all rows, in parts that hold about equally many edges."""
    in_parallel(kernel, balanced_parts(row_ptr.numpy(), work_per_edge), *map(as_arrays, arguments))


def _work_per_edge(inputs: AttentionInputs) -> int:
    return 2 * (inputs.key.shape[1] + inputs.value.shape[1])


def _work_per_row(tokens: FewClusters) -> int:
    return 2 * tokens.query_weight.shape[1] * tokens.blocks.shape[-1]
