"""Products of a CSR matrix, whose entries belong to edges, with dense rows; from the queries' side and the keys'.

Rows are flattened over graphs as in :mod:`sbmt.kernels.cpu.attention`.
"""

import numpy as np

from sbmt.kernels.cpu.row_sums import dots, weighted_sum
from sbmt.kernels.cpu.toolchain import kernel


@kernel
def edge_dots(start, stop, query, key, row_ptr, keys, n_queries, n_keys, out):
    """out[e] = ⟨query_i, key_j⟩ for the edges e = (i, j) of rows start … stop."""
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        dots(query[row], key, row // n_queries * n_keys, keys, first, last, out[first:last])


@kernel
def sum_over_keys(start, stop, weights, key, row_ptr, keys, n_queries, n_keys, out):
    """out_i = Σ_j w_ij key_j for the queries start … stop."""
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        weighted_sum(weights[first:last], key, row // n_queries * n_keys, keys, first, last, out[row])


@kernel
def sum_over_queries(start, stop, weights, query, column_ptr, queries, positions, row_ptr, n_queries, n_keys, out):
    """out_j = Σ_i w_ij query_i for the keys start … stop, through the transposed mask."""
    ours = np.empty(n_queries, weights.dtype)
    for column in range(start, stop):
        first, last = column_ptr[column], column_ptr[column + 1]
        graph = column // n_keys
        base = row_ptr[graph * n_queries]
        for i in range(last - first):
            ours[i] = weights[base + positions[first + i]]
        weighted_sum(ours, query, graph * n_queries, queries, first, last, out[column])


@kernel
def transpose(start, stop, row_ptr, keys, n_queries, n_keys, column_ptr, queries, positions):
    """For graphs start … stop: the queries of each key in ascending order, and where each edge stands in its graph.

    A counting sort: sizes of the columns, their starts, then every edge in turn to the next place of its column.
    """
    for graph in range(start, stop):
        base = row_ptr[graph * n_queries]
        end = row_ptr[(graph + 1) * n_queries]
        to = column_ptr[graph * n_keys : (graph + 1) * n_keys]
        to[:] = 0
        for e in range(base, end):
            to[keys[e]] += 1
        position = base
        for j in range(n_keys):  # counts become starts
            count = to[j]
            to[j] = position
            position += count
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            for e in range(row_ptr[row], row_ptr[row + 1]):
                place = to[keys[e]]
                to[keys[e]] = place + 1
                queries[place] = row - graph * n_queries
                positions[place] = e - base
        for j in range(n_keys - 1, 0, -1):  # each start has moved to its end, which is the next one's start
            to[j] = to[j - 1]
        to[0] = base
