"""What fitted masks need besides drawing: memberships in parts, and what follows from them along edges and in sums.

A token is in two parts of each partition; arrays ``part`` and ``weight`` hold both of one partition after the other.
"""

import math

import numpy as np

from sbmt.kernels.cpu.compile import loop
from sbmt.kernels.cpu.draw import fill_rates, pair_rate


@loop
def part_memberships(start, stop, logits, part, weight):
    """The two parts of largest logit of each partition, in ascending order, and their softmax, for some tokens.

    Logits are ``(tokens, size, n_partitions)``, so that all partitions are searched at once, by vectors.
    """
    n_partitions = logits.shape[2]
    first, second = np.empty(n_partitions, np.int32), np.empty(n_partitions, np.int32)
    largest, next_largest = np.empty(n_partitions, logits.dtype), np.empty(n_partitions, logits.dtype)
    for token in range(start, stop):
        for f in range(n_partitions):
            first[f], second[f] = 0, 0
            largest[f], next_largest[f] = logits[token, 0, f], -np.inf
        for a in range(1, logits.shape[1]):
            for f in range(n_partitions):
                x = logits[token, a, f]
                is_first, is_second = x > largest[f], x > next_largest[f]
                second[f] = first[f] if is_first else (a if is_second else second[f])
                next_largest[f] = largest[f] if is_first else (x if is_second else next_largest[f])
                first[f] = a if is_first else first[f]
                largest[f] = x if is_first else largest[f]
        for f in range(n_partitions):
            share = 1.0 / (1.0 + math.exp(next_largest[f] - largest[f])) if logits.shape[1] > 1 else 0.5
            share = share if first[f] <= second[f] else 1.0 - share
            part[token, 2 * f] = f * logits.shape[1] + min(first[f], second[f])
            part[token, 2 * f + 1] = f * logits.shape[1] + max(first[f], second[f])
            weight[token, 2 * f], weight[token, 2 * f + 1] = share, 1.0 - share


@loop
def part_memberships_backward(start, stop, grad, part, weight, to_logits):
    """Gradients of the logits of some tokens."""
    for token in range(start, stop):
        for c in range(0, part.shape[1], 2):
            slope = weight[token, c] * weight[token, c + 1] * (grad[token, c] - grad[token, c + 1])
            f, size = c >> 1, to_logits.shape[1]
            to_logits[token, part[token, c] - f * size, f] += slope
            to_logits[token, part[token, c + 1] - f * size, f] -= slope


@loop
def pair_totals(start, stop, part, weight, n_tokens, size, out):
    """How much the tokens of graphs start … stop are in each pair of parts, ``out[graph, group, part, part]``."""
    for graph in range(start, stop):
        for token in range(graph * n_tokens, (graph + 1) * n_tokens):
            for g in range(out.shape[1]):
                for x in range(4 * g, 4 * g + 2):
                    a = part[token, x] - 2 * g * size
                    for y in range(4 * g + 2, 4 * g + 4):
                        out[graph, g, a, part[token, y] - (2 * g + 1) * size] += weight[token, x] * weight[token, y]


@loop
def pair_totals_backward(start, stop, grad, part, weight, n_tokens, size, to_weight):
    """Gradients of the weights of graphs start … stop."""
    for graph in range(start, stop):
        for token in range(graph * n_tokens, (graph + 1) * n_tokens):
            for g in range(grad.shape[1]):
                for x in range(4 * g, 4 * g + 2):
                    a = part[token, x] - 2 * g * size
                    for y in range(4 * g + 2, 4 * g + 4):
                        slope = grad[graph, g, a, part[token, y] - (2 * g + 1) * size]
                        to_weight[token, x] += slope * weight[token, y]
                        to_weight[token, y] += slope * weight[token, x]


@loop
def edge_rate(start, stop, query_part, query_weight, blocks, part, weight, row_ptr, keys, sizes, out):
    """Rates of the edges of rows start … stop; ``blocks`` are those of each head."""
    n_queries, n_keys, heads = sizes
    rates = np.empty(blocks.shape[1] * blocks.shape[2], out.dtype)
    for row in range(start, stop):
        graph = row // n_queries
        fill_rates(query_part, query_weight, row, blocks, graph % heads, rates)
        for e in range(row_ptr[row], row_ptr[row + 1]):
            out[e] = pair_rate(rates, part, weight, graph * n_keys + keys[e])


@loop
def edge_rate_backward(
    start, stop, grad, query_part, query_weight, blocks, part, weight, row_ptr, keys, sizes, to_query, to_blocks, to_key
):
    """Gradients of :func:`edge_rate` for graphs start … stop; those of the blocks are apart for each graph."""
    n_queries, n_keys, heads = sizes
    size = blocks.shape[2]
    rates, to_rates = np.empty(blocks.shape[1] * size, grad.dtype), np.empty(blocks.shape[1] * size, grad.dtype)
    for row in range(start * n_queries, stop * n_queries):
        graph = row // n_queries
        fill_rates(query_part, query_weight, row, blocks, graph % heads, rates)
        for c in range(to_rates.shape[0]):
            to_rates[c] = 0.0
        for e in range(row_ptr[row], row_ptr[row + 1]):
            j = graph * n_keys + keys[e]
            for c in range(0, part.shape[1], 4):
                a, b, p, q = part[j, c], part[j, c + 1], part[j, c + 2], part[j, c + 3]
                to_first = grad[e] * (rates[p] * weight[j, c + 2] + rates[q] * weight[j, c + 3])
                to_second = grad[e] * (rates[a] * weight[j, c] + rates[b] * weight[j, c + 1])
                to_rates[a] += to_first * weight[j, c]
                to_rates[b] += to_first * weight[j, c + 1]
                to_rates[p] += to_second * weight[j, c + 2]
                to_rates[q] += to_second * weight[j, c + 3]
                to_key[j, c] += to_first * rates[a]
                to_key[j, c + 1] += to_first * rates[b]
                to_key[j, c + 2] += to_second * rates[p]
                to_key[j, c + 3] += to_second * rates[q]
        for c in range(query_part.shape[1]):  # back through fill_rates
            f = c // 2
            a, slope = query_part[row, c] - f * size, 0.0
            for b in range(size):
                slope += to_rates[f * size + b] * blocks[graph % heads, f, a, b]
                to_blocks[graph, f, a, b] += query_weight[row, c] * to_rates[f * size + b]
            to_query[row, c] = slope
