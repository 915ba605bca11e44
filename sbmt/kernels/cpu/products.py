"""Products of a CSR mask's entries with dense rows: scalar products along edges, and weighted sums over neighbours.

Everything is flattened: row r of the mask and of ``query`` belongs to graph r // n_queries, whose keys are rows
graph · n_keys + j of ``key``.
"""

import numpy as np

from sbmt.kernels.cpu.prefetch import prefetch
from sbmt.kernels.cpu.toolchain import kernel

_AHEAD = 32  # edges of the next column whose weights, scattered over the rows, are asked for


@kernel
def dots_along_rows(start, stop, query, key, mask, out):
    """out[e] = ⟨query_i, key_j⟩ for the edges e = (i, j) of rows start … stop."""
    row_ptr, keys, n_queries, n_keys = mask
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        dots(query[row], key, row // n_queries * n_keys, keys, first, last, out[first:last])


@kernel
def sum_rows(start, stop, weights, key, mask, out):
    """out_i = Σ_j w_ij key_j for the queries start … stop."""
    row_ptr, keys, n_queries, n_keys = mask
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        weighted_sum(weights[first:last], key, row // n_queries * n_keys, keys, first, last, out[row])


@kernel
def sum_columns(start, stop, weights, query, mask, by_key, out):
    """out_j = Σ_i w_ij query_i for the keys start … stop."""
    row_ptr, _, n_queries, n_keys = mask
    column_ptr, queries, positions = by_key
    ours = np.empty(n_queries, weights.dtype)
    for column in range(start, stop):
        first, last = column_ptr[column], column_ptr[column + 1]
        graph = column // n_keys
        base = row_ptr[graph * n_queries]
        for e in range(last, min(last + _AHEAD, positions.size)):
            prefetch(weights, base + positions[e])
        for i in range(last - first):
            ours[i] = weights[base + positions[first + i]]
        weighted_sum(ours, query, graph * n_queries, queries, first, last, out[column])


# Everything that follows edges spends its time in the two loops below. They handle four neighbours at a time, so that
# loads for one overlap with the arithmetic of the others.


@kernel
def dots(vector, matrix, offset, index, start, stop, out):
    """Sets out[e − start] to ⟨vector, matrix[offset + index[e]]⟩ for start ≤ e < stop."""
    width = vector.shape[0]
    zero = vector.dtype.type(0)
    e = start
    while e + 4 <= stop:
        a, b = matrix[offset + index[e]], matrix[offset + index[e + 1]]
        c, d = matrix[offset + index[e + 2]], matrix[offset + index[e + 3]]
        sum_a = sum_b = sum_c = sum_d = zero
        for i in range(width):
            x = vector[i]
            sum_a += x * a[i]
            sum_b += x * b[i]
            sum_c += x * c[i]
            sum_d += x * d[i]
        to = e - start
        out[to], out[to + 1], out[to + 2], out[to + 3] = sum_a, sum_b, sum_c, sum_d
        e += 4
    while e < stop:
        a = matrix[offset + index[e]]
        sum_a = zero
        for i in range(width):
            sum_a += vector[i] * a[i]
        out[e - start] = sum_a
        e += 1


@kernel
def weighted_sum(weights, matrix, offset, index, start, stop, out):
    """Sets out to Σ_e weights[e − start] · matrix[offset + index[e]] over start ≤ e < stop."""
    width = out.shape[0]
    for i in range(width):
        out[i] = 0
    e = start
    while e + 4 <= stop:
        a, b = matrix[offset + index[e]], matrix[offset + index[e + 1]]
        c, d = matrix[offset + index[e + 2]], matrix[offset + index[e + 3]]
        to = e - start
        w_a, w_b, w_c, w_d = weights[to], weights[to + 1], weights[to + 2], weights[to + 3]
        for i in range(width):
            out[i] += (w_a * a[i] + w_b * b[i]) + (w_c * c[i] + w_d * d[i])
        e += 4
    while e < stop:
        a = matrix[offset + index[e]]
        w_a = weights[e - start]
        for i in range(width):
            out[i] += w_a * a[i]
        e += 1
