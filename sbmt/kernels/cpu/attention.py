"""Softmax attention along the rows of a CSR mask, and its gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.elementary import exp, log
from sbmt.kernels.cpu.parallel import balanced_parts, in_parallel
from sbmt.kernels.cpu.products import dots, sum_over_queries, weighted_sum
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, Mask, as_arrays


class Gradients(NamedTuple):
    """What the backward pass along rows writes."""

    query: Tensor
    score: Tensor  # per edge, of q·k
    gate: Tensor  # per edge
    weight: Tensor  # per edge, not a gradient: the weight of its value, which the gradients of values need


def attend(inputs: AttentionInputs, mask: Mask, is_score_rule: bool) -> AttentionResults:
    """Output, and the logarithms of denominators in float64, since float32 would lose digits of large scores."""
    n_rows, d_value = inputs.query.shape[0], inputs.value.shape[1]
    results = AttentionResults(
        inputs.value.new_empty(n_rows, d_value), inputs.query.new_empty(n_rows, dtype=torch.float64)
    )
    arrays = as_arrays(mask)
    parts = balanced_parts(arrays.row_ptr, _work_per_edge(inputs))
    in_parallel(attend_rows, parts, as_arrays(inputs), arrays, is_score_rule, as_arrays(results))
    return results


def attend_backward(
    grad_out: Tensor,
    results: AttentionResults,
    inputs: AttentionInputs,
    mask: Mask,
    by_key: ByKey,
    is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and gate."""
    query, _, _, gate, _ = inputs
    per_edge = query.new_empty(mask.keys.shape)
    grads = Gradients(torch.empty_like(query), per_edge, torch.empty_like(gate), torch.empty_like(per_edge))
    arrays = as_arrays(mask)
    parts = balanced_parts(arrays.row_ptr, _work_per_edge(inputs))
    given = as_arrays(inputs), arrays, is_score_rule, as_arrays(results), grad_out.numpy()
    in_parallel(differentiate_rows, parts, *given, as_arrays(grads))
    grad_key = sum_over_queries(grads.score, query, mask, by_key)
    grad_value = sum_over_queries(grads.weight, grad_out, mask, by_key)
    return grads.query, grad_key, grad_value, grads.gate


def _work_per_edge(inputs: AttentionInputs) -> int:
    return 2 * (inputs.key.shape[1] + inputs.value.shape[1])


@kernel
def attend_rows(start, stop, inputs, mask, is_score_rule, results):
    """Fills rows start … stop of the results."""
    query, key, value, gate, weight_scale = inputs
    row_ptr, keys, n_queries, n_keys = mask
    out, log_total = results
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
        most = _largest(scores, count)
        total = 0.0
        for i in range(count):
            scores[i] = exp(scores[i] - most)
            total += scores[i]
        log_total[row] = most + log(total)
        share = query.dtype.type(1 / total)
        for i in range(count):
            scores[i] *= share
        if weight_scale.size:
            for i in range(count):
                scores[i] *= weight_scale[first + i]
        weighted_sum(scores, value, offset, keys, first, last, out[row])


@kernel
def differentiate_rows(start, stop, inputs, mask, is_score_rule, results, grad_out, grads):
    """Fills rows start … stop of the gradients, and what belongs to their edges.

    With weights w, scale c and scores s: dw = c · ⟨dout, v⟩, and ds = w · (dw − Σ w dw), where Σ w dw = ⟨dout, out⟩.
    """
    query, key, value, gate, weight_scale = inputs
    row_ptr, keys, n_queries, n_keys = mask
    out, log_total = results
    grad_query, grad_score, grad_gate, weights = grads
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
        for i in range(last - first):
            weight[i] = exp(scores[i] - log_total[row])
        if weight_scale.size:
            for i in range(last - first):
                grad[i] = weight[i] * (weight_scale[first + i] * grad[i] - mean)
                weight[i] *= weight_scale[first + i]
        else:
            for i in range(last - first):
                grad[i] = weight[i] * (grad[i] - mean)
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
    """Computes what the softmax is taken of: g · q·k / √d, or q·k / √d + ln g."""
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
    """The largest of the first ``count`` numbers; four at a time, so that no comparison waits for the one before it."""
    a = b = c = d = x[0]
    for i in range(0, count - 3, 4):
        a, b, c, d = max(a, x[i]), max(b, x[i + 1]), max(c, x[i + 2]), max(d, x[i + 3])
    for i in range(count // 4 * 4, count):
        a = max(a, x[i])
    return max(max(a, b), max(c, d))
