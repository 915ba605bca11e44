"""Products of a CSR mask's entries with dense rows: scalar products along edges, and weighted sums over neighbours.

Everything is flattened: row r of the mask and of ``query`` belongs to graph r // n_queries, whose keys are rows
graph · n_keys + j of ``key``.
"""

import numpy as np
from numba import uint64

from sbmt.kernels.cpu.prefetch import prefetch
from sbmt.kernels.cpu.toolchain import inlined, kernel
from sbmt.kernels.cpu.vectors import LANES, dot, sum_rows_at

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


# Everything that follows edges spends its time in the two functions below.


@inlined
def dots(vector, matrix, offset, index, start, stop, out):
    """Sets out[e − start] to ⟨vector, matrix[offset + index[e]]⟩ for start ≤ e < stop."""
    width = uint64(vector.shape[0])
    whole = width - width % uint64(LANES)
    for i in range(uint64(stop - start)):
        row = uint64(offset + index[uint64(start) + i])
        total = dot(vector, uint64(0), matrix, row * width, whole)
        for column in range(whole, width):
            total += vector[column] * matrix[row, column]
        out[i] = total


@inlined
def weighted_sum(weights, matrix, offset, index, start, stop, out):
    """Sets out to Σ_e weights[e − start] · matrix[offset + index[e]] over start ≤ e < stop."""
    width, column = out.shape[0], 0
    while column + 2 * LANES <= width:  # two sums at a time, so that one does not wait for the other
        sum_rows_at(2, weights, start, matrix, matrix.shape[1], offset, index, start, stop, column, out, column)
        column += 2 * LANES
    if column + LANES <= width:
        sum_rows_at(1, weights, start, matrix, matrix.shape[1], offset, index, start, stop, column, out, column)
        column += LANES
    for i in range(column, width):
        total = out.dtype.type(0)
        for e in range(start, stop):
            total += weights[e - start] * matrix[offset + index[e], i]
        out[i] = total
