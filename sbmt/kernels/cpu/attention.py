"""Softmax attention along the rows of a CSR mask, and its gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`.
"""

import math

import numpy as np

from sbmt.kernels.cpu.elementary import exp, log
from sbmt.kernels.cpu.products import dots, weighted_sum
from sbmt.kernels.cpu.toolchain import kernel


@kernel
def attend_rows(start, stop, inputs, mask, is_score_rule, results):
    """Fills rows start … stop of the results."""
    query, key, value, gate, bias, sink, weight_scale = inputs
    row_ptr, keys, n_queries, n_keys = mask
    out, log_total, weights = results
    scores = np.empty(n_keys, query.dtype)
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        if first == last:
            out[row] = 0
            log_total[row] = 0
            continue
        offset = row // n_queries * n_keys
        _scores(query[row], key, offset, keys, first, last, gate, is_score_rule, scores)
        count = last - first
        if bias.size:
            for i in range(count):
                scores[i] += bias[first + i]
        most = _largest(scores, count)
        total = 0.0
        if sink.size:
            most = max(most, sink[row // n_queries])
            total = exp(sink[row // n_queries] - most)
        for i in range(count):
            scores[i] = exp(scores[i] - most)
            total += scores[i]
        log_total[row] = most + log(total)
        share = query.dtype.type(1 / total)
        for i in range(count):
            scores[i] *= share
        if weights.size:
            for i in range(count):
                weights[first + i] = scores[i]
        if weight_scale.size:
            for i in range(count):
                scores[i] *= weight_scale[first + i]
        weighted_sum(scores, value, offset, keys, first, last, out[row])


@kernel
def differentiate_rows(start, stop, inputs, mask, is_score_rule, results, grad_out, grad_weights, grads):
    """Fills rows start … stop of the gradients, and the numbers of their edges.

    With weights w, scale c, scores s and gradients u of the weights that were returned: dw = c · ⟨dout, v⟩ + u, and
    ds = w · (dw − Σ w dw), where Σ w dw = ⟨dout, out⟩ + Σ w u. A sink has the same ds, with a dw of zero.
    """
    query, key, value, gate, bias, sink, weight_scale = inputs
    row_ptr, keys, n_queries, n_keys = mask
    out, log_total, _ = results
    grad_query, grad_score, grad_gate, grad_bias, grad_sink, weights = grads
    scale = query.dtype.type(1 / math.sqrt(query.shape[1]))
    scores = np.empty(n_keys, query.dtype)
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        if first == last:
            grad_query[row] = 0
            continue
        offset = row // n_queries * n_keys
        _scores(query[row], key, offset, keys, first, last, gate, is_score_rule, scores)
        weight, grad = weights[first:last], grad_score[first:last]
        dots(grad_out[row], value, offset, keys, first, last, grad)
        mean = query.dtype.type(0)
        for i in range(out.shape[1]):
            mean += grad_out[row, i] * out[row, i]
        if bias.size:
            for i in range(last - first):
                weight[i] = exp(query.dtype.type(scores[i] + bias[first + i] - log_total[row]))
        else:
            for i in range(last - first):
                weight[i] = exp(query.dtype.type(scores[i] - log_total[row]))
        if grad_weights.size:
            for i in range(last - first):
                mean += weight[i] * grad_weights[first + i]
            for i in range(last - first):
                kept = weight[i] * (weight_scale[first + i] if weight_scale.size else query.dtype.type(1))
                grad[i] = kept * grad[i] + weight[i] * (grad_weights[first + i] - mean)
                weight[i] = kept
        elif weight_scale.size:
            for i in range(last - first):
                grad[i] = weight[i] * (weight_scale[first + i] * grad[i] - mean)
                weight[i] *= weight_scale[first + i]
        else:
            for i in range(last - first):
                grad[i] = weight[i] * (grad[i] - mean)
        if sink.size:
            grad_sink[row] = -exp(sink[row // n_queries] - log_total[row]) * mean
        if grad_bias.size:
            for i in range(last - first):
                grad_bias[first + i] = grad[i]
        if gate.size:
            for i in range(last - first):
                g = gate[first + i]
                if is_score_rule:
                    grad_gate[first + i] = grad[i] * (scores[i] / g)
                    grad[i] *= g
                else:
                    grad_gate[first + i] = grad[i] / g
        for i in range(last - first):
            grad[i] *= scale
        weighted_sum(grad, key, offset, keys, first, last, grad_query[row])


@kernel
def _scores(vector, key, offset, keys, first, last, gate, is_score_rule, scores):
    """Computes the softmax's arguments: g · q·k / √d, or q·k / √d + ln g."""
    scale = vector.dtype.type(1 / math.sqrt(vector.shape[0]))
    dots(vector, key, offset, keys, first, last, scores)
    for i in range(last - first):
        scores[i] *= scale
    if gate.size:
        if is_score_rule:
            for i in range(last - first):
                scores[i] *= gate[first + i]
        else:
            for i in range(last - first):
                scores[i] += log(gate[first + i])


@kernel
def _largest(x, count):
    """The largest of the first ``count`` numbers, four at a time so that comparisons do not wait for each other."""
    a = b = c = d = x[0]
    for i in range(0, count - 3, 4):
        a, b, c, d = max(a, x[i]), max(b, x[i + 1]), max(c, x[i + 2]), max(d, x[i + 3])
    for i in range(count // 4 * 4, count):
        a = max(a, x[i])
    return max(max(a, b), max(c, d))
