"""Attention along a mask's rows, and the fit of the block model to it, in one pass over the edges.

Rates, weights and their gradients are needed by the next step alone, so they are kept for some rows at a time, whose
keys are then still in the cache when the gradients of their memberships are added.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.attention import EDGES, attend_rows, some_rows
from sbmt.kernels.cpu.crossed import differentiate_along_rows, differentiate_pairs, rates_along_rows, sum_pairs
from sbmt.kernels.cpu.graphs import Tokens, of_copy, of_graph, totals
from sbmt.kernels.cpu.launch import CHUNKS, active_parts
from sbmt.kernels.cpu.poisson import sum_gains, weigh_rows
from sbmt.kernels.cpu.threads.parallel import balanced_parts, equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, CrossedFactors, Mask, as_arrays


class Fit(NamedTuple):
    """What decides which weights are wanted, and how badly the block model explains them."""

    exploration: float
    reach: int  # edges between tokens at most so many places apart are certain; -1 for none
    smallest: float  # a score is raised by −ln max(p, smallest)
    edges_per_query: float


class Pairs(NamedTuple):
    """The sum of all rates by pairs of parts, and its gradients."""

    total: Tensor  # (graphs,), the sum itself
    to_query: Tensor  # (graphs, groups, s, s), of how much queries are in each pair
    to_key: Tensor  # likewise of keys


class Fitted(NamedTuple):
    """What the pass over the edges writes."""

    out: Tensor  # as many as queries, d_value wide
    log_total: Tensor  # float64, as many as queries
    bias: Tensor  # (n_edges,)
    expected: Tensor  # (graphs · n_queries,), how many edges each row expects without exploration
    gain: Tensor  # likewise, Σ_j a_ij ln(r_ij + δ)
    to_query: Tensor  # gradients of the loss, (graphs · n_queries, chosen)
    to_blocks: Tensor  # (graphs · chunks, partitions, s, s)
    to_key: Tensor  # (chunks, graphs · n_keys, chosen)


def attend_and_fit(
    tokens: Tokens, weight_scale: Tensor, factors: CrossedFactors, mask: Mask, fit: Fit
) -> tuple[Tensor, ...]:
    """See :func:`sbmt.kernels.fit.attend_and_fit`."""
    (query, _, value, _), (_, of_query, blocks, _, of_key) = tokens, factors
    n_rows, n_graphs = of_query.shape[0], of_query.shape[0] // mask.n_queries
    heads, n_partitions, size, _ = blocks.shape
    n_chunks, active = max(1, CHUNKS // n_graphs), active_parts(factors)
    of_pairs = (blocks.new_empty(n_graphs, n_partitions // 2, size, size) for _ in range(2))
    pairs = Pairs(blocks.new_empty(n_graphs), *of_pairs)
    fitted = Fitted(
        value.new_empty(query.shape[0], value.shape[1]),
        query.new_empty(query.shape[0], dtype=torch.float64),
        query.new_empty(mask.keys.shape),
        blocks.new_empty(n_rows),
        blocks.new_empty(n_rows),
        torch.empty_like(of_query),
        blocks.new_zeros(n_graphs * n_chunks, *blocks.shape[1:]),
        of_key.new_empty(n_chunks, *of_key.shape),
    )
    given = (*map(as_arrays, (factors, mask, pairs)), fitted.to_blocks.numpy())
    work = (mask.n_queries + mask.n_keys) * of_query.shape[1] + 3 * n_partitions * size**3
    in_parallel(sum_rates, equal_parts(n_graphs, work), active, *given)
    first = np.arange(n_graphs * n_chunks + 1) * mask.n_queries // n_chunks
    parts = balanced_parts(given[1].row_ptr[first], 4 * (query.shape[1] + value.shape[1] + of_query.shape[1]))
    in_parallel(fit_chunks, parts, active, *given[:3], *map(as_arrays, (tokens, weight_scale, tuple(fit), fitted)))
    loss = (pairs.total - fit.edges_per_query * totals(fitted.gain, mask.n_queries)).sum()
    of_blocks = fitted.to_blocks.unflatten(0, (-1, heads, n_chunks)).sum((0, 2))
    of_keys = fitted.to_key.sum(0) if n_chunks > 1 else fitted.to_key[0]
    expected = totals(fitted.expected, mask.n_queries)
    return fitted.out, loss, expected, *fitted[1:3], fitted.to_query, of_blocks, of_keys


@kernel
def sum_rates(start, stop, active, factors, mask, pairs, to_blocks):
    """Fills ``pairs`` for graphs start … stop, and the gradients of S in the first chunk of each.

    With how much queries and keys are in each pair of parts of a group, N and M, the sum is ⟨S₁ᵀ N S₂, M⟩.
    """
    query_part, query_weight, blocks, key_part, key_weight = factors
    total, to_query, to_key = pairs
    (n_graphs, n_groups, size, _), heads = to_query.shape, blocks.shape[0]
    n_chunks = to_blocks.shape[0] // n_graphs
    of_queries, of_keys = np.empty(to_query.shape, blocks.dtype), np.empty(to_key.shape, blocks.dtype)
    sum_pairs(start, stop, active, query_part, query_weight, mask.n_queries, of_queries)
    sum_pairs(start, stop, active, key_part, key_weight, mask.n_keys, of_keys)
    right = np.empty((size, size), blocks.dtype)
    for graph in range(start, stop):
        total[graph] = 0
        for g in range(n_groups):
            n, m, of_n, of_m = of_queries[graph, g], of_keys[graph, g], to_query[graph, g], to_key[graph, g]
            first, second = blocks[graph % heads, 2 * g], blocks[graph % heads, 2 * g + 1]
            of_blocks = to_blocks[graph * n_chunks]
            _multiply(n, second, right)
            _multiply(first.T, right, of_m)
            _multiply(right, np.ascontiguousarray(m.T), of_blocks[2 * g])
            _multiply(first, m, right)
            _multiply(right, np.ascontiguousarray(second.T), of_n)
            _multiply(n.T, right, of_blocks[2 * g + 1])
            total[graph] += np.sum(of_m * m)


@kernel
def _multiply(x, y, out):
    """Sets ``out`` to the product of two small matrices; the second is contiguous, so that its rows are vectors."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0
        for k in range(x.shape[1]):
            for j in range(out.shape[1]):
                out[i, j] += x[i, k] * y[k, j]


@kernel
def fit_chunks(start, stop, active, factors, mask, pairs, tokens, weight_scale, fit, fitted):
    """Fills what comes of chunks start … stop of rows, into equally many of which each graph is divided."""
    row_ptr, keys, n_queries, n_keys = mask
    exploration, reach, smallest, edges_per_query = fit
    n_chunks, copies = fitted.to_key.shape[0], tokens.query.shape[0] // factors.query_part.shape[0]
    size, dtype, here = max(EDGES, n_keys), factors.blocks.dtype, np.empty(n_queries + 1, np.int64)
    rate, of_rate, target = np.empty(size, dtype), np.empty(size, dtype), np.empty(size, dtype)
    weights, none = np.empty(size, tokens.query.dtype), np.empty(0, tokens.query.dtype)
    for number in range(start, stop):
        graph, chunk = number // n_chunks, number % n_chunks
        before, of_this = graph * n_queries, of_graph(factors, graph, n_queries, n_keys)
        queries, of_key = slice(before, before + n_queries), fitted.to_key[chunk]
        expected, gain, to_query = fitted.expected[queries], fitted.gain[queries], fitted.to_query[queries]
        to_key = of_key[graph * n_keys : (graph + 1) * n_keys]
        to_key[:] = 0
        edges = row_ptr[before], row_ptr[before + n_queries]  # of the graph
        first, last = chunk * n_queries // n_chunks, (chunk + 1) * n_queries // n_chunks
        row = first
        while row < last:
            end = some_rows(before + row, before + last, row_ptr) - before
            base, n_edges = row_ptr[before + row], row_ptr[before + end] - row_ptr[before + row]
            for i in range(row, end + 1):
                here[i] = row_ptr[before + i] - base
            local, bias = Mask(here, keys[base:], n_queries, n_keys), fitted.bias[base : base + n_edges]
            rates_along_rows(row, end, active, of_this, local, rate)
            weigh_rows(row, end, rate, local, exploration, reach, smallest, bias, expected)
            target[:n_edges] = 0
            for copy in range(graph * copies, (graph + 1) * copies):
                query, key, value, sink = of_copy(tokens, copy, n_queries, n_keys)
                place = edges[0] * copies + (copy - graph * copies) * (edges[1] - edges[0]) + base - edges[0]
                scale = weight_scale[place : place + n_edges] if weight_scale.size else none
                inputs = AttentionInputs(query, key, value, none, bias, sink, scale)
                rows = slice(copy * n_queries, (copy + 1) * n_queries)
                results = AttentionResults(fitted.out[rows], fitted.log_total[rows], weights)
                attend_rows(row, end, inputs, local, True, results)
                for e in range(n_edges):
                    target[e] += weights[e]
            for e in range(n_edges):
                target[e] /= copies
            sum_gains(row, end, rate, target, local, exploration, reach, gain, of_rate)
            for e in range(n_edges):
                of_rate[e] *= -edges_per_query
            into = to_query, fitted.to_blocks[number], to_key
            differentiate_along_rows(row, end, of_rate, active, of_this, local, *into)
            row = end
        part, weight, _, key_part, key_weight = factors
        rows = before + first, before + last
        differentiate_pairs(*rows, active, pairs.to_query, part, weight, n_queries, fitted.to_query)
        rows = graph * n_keys + chunk * n_keys // n_chunks, graph * n_keys + (chunk + 1) * n_keys // n_chunks
        differentiate_pairs(*rows, active, pairs.to_key, key_part, key_weight, n_keys, of_key)
