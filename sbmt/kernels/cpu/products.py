"""Products of a CSR mask's entries with dense rows: scalar products along edges, and weighted sums over neighbours.

Everything is flattened: row r of the mask and of ``query`` belongs to graph r // n_queries, whose keys are rows
graph · n_keys + j of ``key``.
"""

from numba import uint64

from sbmt.kernels.cpu.masks import first_from
from sbmt.kernels.cpu.toolchain import borrowing, inlined
from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.cpu.vectors.sums import add_to_rows_at, dot, dots_at, sum_rows_at


@borrowing
def dots_along_rows(start, stop, query, key, mask, base, out):
    """out[e − base] = ⟨query_i, key_j⟩ for the edges e = (i, j) of rows start … stop."""
    row_ptr, keys, n_queries, n_keys = mask
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        dots(query[row], key, row // n_queries * n_keys, keys, first, last, out[first - base : last - base])


@borrowing
def sum_rows(start, stop, weights, key, mask, base, out):
    """out_i = Σ_j w_e key_j, with e = (i, j) and weights[e − base], for the queries start … stop."""
    row_ptr, keys, n_queries, n_keys = mask
    for row in range(start, stop):
        first, last = row_ptr[row], row_ptr[row + 1]
        of_row = weights[first - base : last - base]
        weighted_sum(of_row, key, row // n_queries * n_keys, keys, first, last, out[row])


@borrowing
def sum_columns(start, stop, weights, query, mask, out):
    """out_j = Σ_i w_ij query_i for the keys start … stop.

    Every row is visited, for those of its keys that are among them. So each sum has the order of the rows, whoever
    computes it.
    """
    row_ptr, keys, n_queries, n_keys = mask
    out[start:stop] = 0
    for graph in range(start // n_keys, -(-stop // n_keys)):
        offset = graph * n_keys
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            first, last = row_ptr[row], row_ptr[row + 1]
            if start > offset:
                first = first_from(start - offset, keys, first, last)
            if stop < offset + n_keys:
                last = first_from(stop - offset, keys, first, last)
            add_to_rows(weights, query, row, out, offset, keys, first, last)


# Everything that follows edges spends its time in the functions below.


@inlined
def dots(vector, matrix, offset, index, start, stop, out):
    """Sets out[e − start] to ⟨vector, matrix[offset + index[e]]⟩ for start ≤ e < stop."""
    width, column = vector.shape[0], 0
    while column + 4 * LANES <= width:
        dots_at(4, vector, matrix, width, offset, index, start, stop, column, out)
        column += 4 * LANES
    if column + 2 * LANES <= width:
        dots_at(2, vector, matrix, width, offset, index, start, stop, column, out)
        column += 2 * LANES
    if column + LANES <= width:
        dots_at(1, vector, matrix, width, offset, index, start, stop, column, out)
        column += LANES
    if column < width:
        for e in range(start, stop):
            total = out.dtype.type(0) if column == 0 else out[e - start]
            for i in range(column, width):
                total += vector[i] * matrix[offset + index[e], i]
            out[e - start] = total


@inlined
def product(x, i, y, j):
    """⟨x_i, y_j⟩ of rows of equal length."""
    width = uint64(x.shape[1])
    whole = width - width % uint64(LANES)
    total = dot(x, uint64(i) * width, y, uint64(j) * width, whole)
    for column in range(whole, width):
        total += x[i, column] * y[j, column]
    return total


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


@inlined
def add_to_rows(weights, vectors, i, matrix, offset, index, start, stop):
    """Adds weights[e] · vectors[i] to matrix[offset + index[e]] for start ≤ e < stop."""
    width, column = vectors.shape[1], 0
    place = i * width
    while column + 4 * LANES <= width:
        add_to_rows_at(4, weights, vectors, place + column, matrix, width, offset, index, start, stop, column)
        column += 4 * LANES
    while column + 2 * LANES <= width:
        add_to_rows_at(2, weights, vectors, place + column, matrix, width, offset, index, start, stop, column)
        column += 2 * LANES
    if column + LANES <= width:
        add_to_rows_at(1, weights, vectors, place + column, matrix, width, offset, index, start, stop, column)
        column += LANES
    if column < width:
        for e in range(start, stop):
            for c in range(column, width):
                matrix[offset + index[e], c] += weights[e] * vectors[i, c]
