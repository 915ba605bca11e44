"""Softmax attention along the rows of a CSR mask, and its gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`. Each step is taken for some rows before the next one,
for two reasons: keys stay in the cache while values are not needed, and what is done to every edge alike is done to
many at once, since a row may have few.
"""

import math

import numpy as np

from sbmt.kernels.cpu.elementary import exp, log
from sbmt.kernels.cpu.products import dots_along_rows, product, sum_rows
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.cpu.vectors.spans import SLACK, largest, spread, total

EDGES = 1 << 11  # of some rows together, unless it is one row that has more


@kernel
def attend_rows(start, stop, inputs, mask, is_score_rule, results):
    """Fills rows start … stop of the results."""
    query, key, value, gate, bias, sink, weight_scale = inputs
    row_ptr, _, n_queries, n_keys = mask
    out, log_totals, weights = results
    size, begin = max(EDGES, n_keys) + SLACK, start
    room, of_row = np.empty(size, query.dtype), np.empty(size, query.dtype)  # of edges: numbers, and one of each row
    while begin < stop:
        end = some_rows(begin, stop, row_ptr)
        base, last_edge = row_ptr[begin], row_ptr[end]
        x, log_total = room[: last_edge - base], log_totals[begin:end]
        _scores(begin, end, query, key, mask, gate, is_score_rule, x)
        if bias.size:
            of_edge = bias[base:last_edge]
            for i in range(x.size):
                x[i] += of_edge[i]
        most, whole = np.zeros(end - begin), np.zeros(end - begin)
        for row in range(begin, end):
            first, last = row_ptr[row] - base, row_ptr[row + 1] - base
            if first == last:
                whole[row - begin] = 1  # whose logarithm is 0
                continue
            at_most = largest(room, first, last)
            if sink.size:
                of_head = sink[row // n_queries % sink.size]
                at_most = max(at_most, of_head)
                whole[row - begin] = of_head - at_most
            most[row - begin] = at_most
            spread(at_most, of_row, first, last)
        for i in range(x.size):
            x[i] = exp(x[i] - of_row[i])
        if sink.size:
            for i in range(whole.size):
                whole[i] = exp(whole[i])
        for row in range(begin, end):
            first, last = row_ptr[row] - base, row_ptr[row + 1] - base
            whole[row - begin] += total(room, first, last)
            spread(query.dtype.type(1 / whole[row - begin]), of_row, first, last)
        for i in range(whole.size):
            log_total[i] = most[i] + log(whole[i])
        for i in range(x.size):
            x[i] *= of_row[i]
        if weights.size:
            weights[base:last_edge] = x
        if weight_scale.size:
            of_edge = weight_scale[base:last_edge]
            for i in range(x.size):
                x[i] *= of_edge[i]
        sum_rows(begin, end, x, value, mask, base, out)
        begin = end


@kernel
def differentiate_rows(start, stop, inputs, mask, is_score_rule, results, grad_out, grad_weights, grads):
    """Fills rows start … stop of the gradients, and the numbers of their edges.

    With weights w, scale c, scores s and gradients u of the weights that were returned: dw = c · ⟨dout, v⟩ + u, and
    ds = w · (dw − Σ w dw), where Σ w dw = ⟨dout, out⟩ + Σ w u. A sink has the same ds, with a dw of zero.
    """
    query, key, value, gate, bias, sink, weight_scale = inputs
    row_ptr, _, n_queries, n_keys = mask
    out, log_total, _ = results
    grad_query, grad_score, grad_gate, grad_bias, grad_sink, weights = grads
    scale, size, begin = query.dtype.type(1 / math.sqrt(query.shape[1])), max(EDGES, n_keys), start
    room, of_row = np.empty(size, query.dtype), np.empty(size + SLACK, query.dtype)
    log_of_row = np.empty(size + SLACK)
    while begin < stop:
        end = some_rows(begin, stop, row_ptr)
        base, last_edge = row_ptr[begin], row_ptr[end]
        x, weight, grad = room[: last_edge - base], weights[base:last_edge], grad_score[base:last_edge]
        of_returned = np.zeros(end - begin, query.dtype)
        _scores(begin, end, query, key, mask, gate, is_score_rule, x)
        weight[:] = x
        if bias.size:
            of_edge = bias[base:last_edge]
            for i in range(x.size):
                weight[i] += of_edge[i]
        for row in range(begin, end):
            spread(log_total[row], log_of_row, row_ptr[row] - base, row_ptr[row + 1] - base)
        for i in range(x.size):
            weight[i] = exp(query.dtype.type(weight[i] - log_of_row[i]))
        dots_along_rows(begin, end, grad_out, value, mask, base, grad)
        if weight_scale.size:
            of_edge = weight_scale[base:last_edge]
            for i in range(x.size):
                grad[i] *= of_edge[i]
        if grad_weights.size:
            of_edge = grad_weights[base:last_edge]
            for i in range(x.size):
                grad[i] += of_edge[i]
                of_row[i] = weight[i] * of_edge[i]
            for row in range(begin, end):
                of_returned[row - begin] = total(of_row, row_ptr[row] - base, row_ptr[row + 1] - base)
        for row in range(begin, end):
            first, last = row_ptr[row] - base, row_ptr[row + 1] - base
            mean = product(grad_out, row, out, row) + of_returned[row - begin]
            spread(mean, of_row, first, last)
            if sink.size and first < last:
                grad_sink[row] = -exp(sink[row // n_queries % sink.size] - log_total[row]) * mean
        for i in range(x.size):
            grad[i] = weight[i] * (grad[i] - of_row[i])
        if weight_scale.size:
            of_edge = weight_scale[base:last_edge]
            for i in range(x.size):
                weight[i] *= of_edge[i]
        if grad_bias.size:
            grad_bias[base:last_edge] = grad
        if gate.size:
            g, to_gate = gate[base:last_edge], grad_gate[base:last_edge]
            for i in range(x.size):
                to_gate[i] = grad[i] * (x[i] / g[i] if is_score_rule else 1 / g[i])
            if is_score_rule:
                for i in range(x.size):
                    grad[i] *= g[i]
        for i in range(x.size):
            grad[i] *= scale
        sum_rows(begin, end, grad, key, mask, base, grad_query)
        begin = end


@kernel
def some_rows(begin, stop, row_ptr):
    """The row after the last of those that are taken together, of which there is at least one."""
    end = begin + 1
    while end < stop and row_ptr[end + 1] - row_ptr[begin] <= EDGES:
        end += 1
    return end


@kernel
def _scores(begin, end, query, key, mask, gate, is_score_rule, x):
    """Computes the softmax's arguments along some rows, without bias: g · q·k / √d, or q·k / √d + ln g."""
    base, scale = mask.row_ptr[begin], query.dtype.type(1 / math.sqrt(query.shape[1]))
    dots_along_rows(begin, end, query, key, mask, base, x)
    for i in range(x.size):
        x[i] *= scale
    if gate.size:
        g = gate[base : base + x.size]
        for i in range(x.size):
            x[i] = x[i] * g[i] if is_score_rule else x[i] + log(g[i])
