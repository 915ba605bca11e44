"""Attention along the rows of a mask, and what else follows its edges: products and dropout's random numbers.

The equations are those of :func:`sbmt.edge_attention`; its plain twin is :func:`sbmt.attention.dense.attend_dense`.
"""

import math

import numpy as np

from sbmt.kernels.cpu.compile import inline_loop, loop
from sbmt.kernels.cpu.rng import cell_uniform

# Rows are named by their numbers, since numba counts references to each view of a row.


@inline_loop
def dot(x, i, y, j):
    """The product of row i of x and row j of y."""
    total = x[i, 0] * y[j, 0]
    for c in range(1, x.shape[1]):
        total += x[i, c] * y[j, c]
    return total


@inline_loop
def _add(out, i, factor, x, j):
    for c in range(x.shape[1]):
        out[i, c] += factor * x[j, c]


@inline_loop
def _softmax_of_row(weights, logits, query, row, key, bias, gate, is_score_rule, sink, keys, start, stop, first_key):
    """Fills in ``weights`` of one row, and ``logits`` as they are before the gate; returns the sink's share."""
    real = weights.dtype.type  # a float64 among float32 would slow the loops down
    scale = real(1.0 / math.sqrt(query.shape[1]))
    largest = real(sink)
    for e in range(start, stop):
        score = dot(query, row, key, first_key + keys[e]) * scale
        logits[e - start] = score
        if gate.shape[0]:
            score = score * gate[e] if is_score_rule else score + math.log(gate[e])
        if bias.shape[0]:
            score += bias[e]
        weights[e - start] = score
        largest = max(largest, score)
    if largest == -np.inf:
        return real(0.0)
    sink_weight = math.exp(real(sink) - largest)
    total = sink_weight
    for e in range(stop - start):
        weights[e] = math.exp(weights[e] - largest)
        total += weights[e]
    for e in range(stop - start):
        weights[e] /= total
    return sink_weight / total


@loop
def attend(start, stop, query, key, value, bias, gate, is_score_rule, sink, scale, row_ptr, keys, sizes, out, weights):
    """Values of rows start … stop, and the weights of their edges where ``weights`` has room for them.

    ``sizes`` are n_queries, n_keys and heads; ``bias``, ``gate``, ``sink`` and ``scale`` may be empty.
    """
    n_queries, n_keys, heads = sizes
    longest = 0
    for row in range(start, stop):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    weight, logit = np.empty(longest, out.dtype), np.empty(longest, out.dtype)
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        graph = row // n_queries
        row_sink = sink[graph % heads] if sink.shape[0] else -np.inf
        _softmax_of_row(
            weight, logit, query, row, key, bias, gate, is_score_rule, row_sink, keys, first, last, graph * n_keys
        )
        for c in range(out.shape[1]):
            out[row, c] = 0.0
        for e in range(first, last):
            if weights.shape[0]:
                weights[e] = weight[e - first]
            factor = weight[e - first] * scale[e] if scale.shape[0] else weight[e - first]
            _add(out, row, factor, value, graph * n_keys + keys[e])


@loop
def attend_backward(
    start, stop, grad_out, grad_weights, query, key, value, bias, gate, is_score_rule, sink, scale, row_ptr, keys,
    sizes, grad_query, grad_key, grad_value, grad_bias, grad_gate, grad_sink,
):  # fmt: skip
    """Gradients of graphs start … stop: a graph's keys belong to no other, so threads never add to the same one."""
    n_queries, n_keys, heads = sizes
    real = query.dtype.type
    root, one = real(1.0 / math.sqrt(query.shape[1])), real(1.0)
    longest = 0
    for row in range(start * n_queries, stop * n_queries):
        longest = max(longest, row_ptr[row + 1] - row_ptr[row])
    weight, logit = np.empty(longest, query.dtype), np.empty(longest, query.dtype)
    slope = np.empty(longest, query.dtype)  # of the loss by each weight
    for graph in range(start, stop):
        row_sink = sink[graph % heads] if sink.shape[0] else -np.inf
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            first, last = row_ptr[row], row_ptr[row + 1]
            sink_weight = _softmax_of_row(
                weight, logit, query, row, key, bias, gate, is_score_rule, row_sink, keys, first, last, graph * n_keys
            )
            mean = real(0.0)
            for e in range(first, last):
                to_key = graph * n_keys + keys[e]
                factor = scale[e] if scale.shape[0] else one
                slope[e - first] = dot(grad_out, row, value, to_key) * factor
                if grad_weights.shape[0]:
                    slope[e - first] += grad_weights[e]
                mean += weight[e - first] * slope[e - first]
                _add(grad_value, to_key, weight[e - first] * factor, grad_out, row)
            if sink.shape[0]:
                grad_sink[graph] -= sink_weight * mean
            for e in range(first, last):
                to_key = graph * n_keys + keys[e]
                to_score = weight[e - first] * (slope[e - first] - mean)
                if bias.shape[0]:
                    grad_bias[e] = to_score
                if gate.shape[0]:
                    grad_gate[e] = to_score * logit[e - first] if is_score_rule else to_score / gate[e]
                    if is_score_rule:
                        to_score *= gate[e]
                _add(grad_query, row, to_score * root, key, to_key)
                _add(grad_key, to_key, to_score * root, query, row)


@loop
def dots(start, stop, query, key, row_ptr, keys, sizes, out):
    """⟨query_i, key_j⟩ for the edges of rows start … stop."""
    n_queries, n_keys, _ = sizes
    for row in range(start, stop):
        first_key = row // n_queries * n_keys
        for e in range(row_ptr[row], row_ptr[row + 1]):
            out[e] = dot(query, row, key, first_key + keys[e])


@loop
def dots_backward(start, stop, grad, query, key, row_ptr, keys, sizes, grad_query, grad_key):
    """Gradients of :func:`dots` for graphs start … stop."""
    n_queries, n_keys, _ = sizes
    for row in range(start * n_queries, stop * n_queries):
        first_key = row // n_queries * n_keys
        for e in range(row_ptr[row], row_ptr[row + 1]):
            _add(grad_query, row, grad[e], key, first_key + keys[e])
            _add(grad_key, first_key + keys[e], grad[e], query, row)


@loop
def cell_uniforms(start, stop, row_ptr, keys, seed, first_example, sizes, out):
    """A uniform for each edge of rows start … stop, which depends on its address alone."""
    n_queries, _, heads = sizes
    for row in range(start, stop):
        graph = row // n_queries
        for e in range(row_ptr[row], row_ptr[row + 1]):
            out[e] = cell_uniform(seed, keys[e], row % n_queries, graph % heads, graph // heads + first_example)
