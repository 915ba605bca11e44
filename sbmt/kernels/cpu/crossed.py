"""Tokens in a few parts of several partitions: which, how much, the rates of edges between them, and gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`. A token's parts come partition by partition, equally
many of each, and a partition's are numbered after those of the partitions before it. Partitions 2g and 2g + 1 are
crossed: group g adds the product of their rates to the rate of an edge.

``active`` is a tuple with an entry for each part of a partition that a token is in, so that kernels are compiled for
their number: loops that short take twice as long where it is known only when they run. Where a step is a few
multiplications, arrays are indexed directly, since a view of a row costs as much, and by unsigned numbers, so that no
time goes into asking whether they count from the end.
"""

import numpy as np
from numba import uint32, uint64
from numba.extending import overload

from sbmt.kernels.cpu.elementary import exp
from sbmt.kernels.cpu.toolchain import inlined, kernel
from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.cpu.vectors.largest import COLUMNS, keep_largest
from sbmt.kernels.cpu.vectors.look_up import AHEAD, add_gradients, can_look_up, fill_rates
from sbmt.kernels.cpu.vectors.prefetch import prefetch
from sbmt.kernels.cpu.vectors.sums import add_scaled, dot, sum_rows_at, transpose_block

_LANES = 64  # rows whose scores are compared at once
_INLINED = {"forceinline": True, "_nrt": False}  # as in :func:`~sbmt.kernels.cpu.toolchain.inlined`


@kernel
def choose_parts(start, stop, active, centres, queries, keys):
    """Fills the parts of largest score of tokens, ascending, and their softmax, for each partition.

    Queries and keys are tokens, ``(graphs, n, width)``, memberships and parts. They are numbered from ``start`` to
    ``stop``, in each graph queries before keys, so that mostly one thread has all of a graph; either may have fewer
    graphs. The scores of a token are its products with the centres of its head, ``(heads, width + 1, parts)``, whose
    last row is added to them.
    """
    n_queries, n_tokens = queries[0].shape[1], queries[0].shape[1] + keys[0].shape[1]
    for graph in range(start // n_tokens, -(-stop // n_tokens)):
        first, last = max(start - graph * n_tokens, 0), min(stop - graph * n_tokens, n_tokens)
        head = graph % centres.shape[0]
        if graph < queries[0].shape[0]:
            _choose_parts(first, min(last, n_queries), active, centres, head, graph, *queries)
        if graph < keys[0].shape[0]:
            _choose_parts(max(first - n_queries, 0), last - n_queries, active, centres, head, graph, *keys)


@kernel
def _choose_parts(start, stop, active, centres, head, graph, tokens, membership, part):
    width, n_active, n_chosen = tokens.shape[2], len(active), part.shape[2]
    n_parts, dtype = centres.shape[2], tokens.dtype
    columns, total = np.zeros((width + 1, _LANES), dtype), np.empty(_LANES, dtype)
    scores, chosen = np.empty((n_chosen, _LANES), dtype), np.empty((n_chosen, _LANES), np.int32)
    columns[width] = 1
    size, of_head = n_parts * n_active // n_chosen, head * (width + 1) * n_parts
    for first in range(start, stop, _LANES):
        n_rows = min(_LANES, stop - first)
        _transpose(tokens[graph, first : first + n_rows], columns)
        for f in range(n_parts // size):
            of_partition = slice(f * n_active, (f + 1) * n_active)
            score, which = scores[of_partition], chosen[of_partition]
            for column in range(0, n_rows, COLUMNS):
                keep_largest(active, centres, of_head + f * size, size, columns, column, score, which)
            _softmax_and_sort(n_rows, active, score, which, total)
            which += f * size
        _transpose(scores, membership[graph, first : first + n_rows])
        _transpose(chosen, part[graph, first : first + n_rows])


@kernel
def _transpose(x, y):
    """Sets y[k, r] to x[r, k], for as many as both have."""
    n_rows, n_columns = min(x.shape[0], y.shape[1]), min(x.shape[1], y.shape[0])
    for r in range(0, n_rows, LANES):
        for k in range(0, n_columns, LANES):
            if r + LANES <= n_rows and k + LANES <= n_columns:
                transpose_block(x, r * x.shape[1] + k, x.shape[1], y, k * y.shape[1] + r, y.shape[1])
            else:
                for i in range(r, min(r + LANES, n_rows)):
                    for j in range(k, min(k + LANES, n_columns)):
                        y[j, i] = x[i, j]


@kernel
def _softmax_and_sort(n_rows, active, score, part, total):
    """Turns the scores of each row, of which the first is the largest, into a softmax, in ascending order of parts."""
    total[:] = 0
    for s in range(len(active) - 1, -1, -1):
        for r in range(n_rows):
            score[s, r] = exp(score[s, r] - score[0, r])
            total[r] += score[s, r]
    for s in range(len(active)):
        for r in range(n_rows):
            score[s, r] /= total[r]
    for _ in range(len(active) - 1):
        for s in range(len(active) - 1):  # neighbours change places
            for r in range(n_rows):
                p, q, x, y = part[s, r], part[s + 1, r], score[s, r], score[s + 1, r]
                part[s, r], score[s, r] = (p, x) if p < q else (q, y)
                part[s + 1, r], score[s + 1, r] = (q, y) if p < q else (p, x)


@kernel
def differentiate_memberships(start, stop, active, chunk, queries, keys, matrix, to_matrix, to_constant):
    """Fills gradients of tokens, where there is room, and of matrix and constant from each of chunks start … stop.

    With gradients u of the weights w of a partition, those of its logits are w (u − Σ w u). Queries and keys are
    gradients, tokens, weights, parts, and gradients of tokens. The tokens of a head are divided into chunks of equal
    size, queries before keys, each with a gradient of the matrix of its own, so that their sum does not depend on who
    computed them.
    """
    n_chunks, n_tokens = to_matrix.shape[1], queries[1].shape[0] // matrix.shape[0] * queries[1].shape[1]
    first_of_keys = (n_tokens + chunk - 1) // chunk
    for number in range(start, stop):
        head, this = number // n_chunks, number % n_chunks
        into = to_matrix[head, this], to_constant[head, this]
        into[0][:], into[1][:] = 0, 0
        if this < first_of_keys:
            _differentiate_chunk(head, this * chunk, chunk, active, matrix, *queries, *into)
        else:
            _differentiate_chunk(head, (this - first_of_keys) * chunk, chunk, active, matrix, *keys, *into)


@kernel
def _differentiate_chunk(
    head, first, size, active, matrix, grad, tokens, weight, part, to_token, to_matrix, to_constant
):
    heads, n_tokens, n_active = matrix.shape[0], uint64(tokens.shape[1]), uint64(len(active))
    n_parts, n_chosen = matrix.shape[1], uint64(part.shape[2])
    for row in range(uint64(first), uint64(min(first + size, tokens.shape[0] // heads * tokens.shape[1]))):
        graph, token = row // n_tokens * heads + head, row % n_tokens
        if to_token.size:
            to_token[graph, token] = 0
        for i in range(uint64(0), n_chosen, n_active):
            mean = grad.dtype.type(0)
            for s in range(i, i + n_active):
                mean += weight[graph, token, s] * grad[graph, token, s]
            for s in range(i, i + n_active):
                of_logit, a = weight[graph, token, s] * (grad[graph, token, s] - mean), uint64(part[graph, token, s])
                to_constant[a] += of_logit
                add_row(of_logit, tokens, graph * n_tokens + token, to_matrix, a)
                if to_token.size:
                    add_row(of_logit, matrix, head * n_parts + a, to_token, graph * n_tokens + token)


@inlined
def add_row(factor, x, i, y, j):
    """Adds ``factor`` times row i of ``x`` to row j of ``y``, rows of equal length of arrays of any number of axes."""
    width = uint64(x.shape[-1])
    x_start, y_start, whole = uint64(i) * width, uint64(j) * width, width - width % uint64(LANES)
    for column in range(uint64(0), whole, uint64(LANES)):
        add_scaled(factor, x, x_start + column, y, y_start + column)
    for column in range(whole, width):
        y.flat[y_start + column] += factor * x.flat[x_start + column]


@kernel
def sum_pairs(start, stop, active, part, weight, n_tokens, total):
    """Fills ``total``, ``(graphs, g, s, s)``: how much the tokens of graphs start … stop are in each pair of parts."""
    n_groups, size, n_active = total.shape[1], total.shape[2], uint64(len(active))
    for graph in range(start, stop):
        total[graph] = 0
        for token in range(uint64(graph * n_tokens), uint64((graph + 1) * n_tokens)):
            for g in range(n_groups):
                i, at = 2 * uint64(g) * n_active, 2 * g * size
                for s in range(i, i + n_active):
                    for t in range(i + n_active, i + 2 * n_active):
                        a, b = uint32(part[token, s] - at), uint32(part[token, t] - at - size)
                        total[graph, g, a, b] += weight[token, s] * weight[token, t]


@kernel
def differentiate_pairs(start, stop, active, grad, part, weight, n_tokens, to_weight):
    """Adds the gradients of the weights of tokens start … stop, numbered across graphs."""
    n_groups, size, n_active = grad.shape[1], grad.shape[2], uint64(len(active))
    for token in range(uint64(start), uint64(stop)):
        graph = token // uint64(n_tokens)
        for g in range(n_groups):
            i, at = 2 * uint64(g) * n_active, 2 * g * size
            for s in range(i, i + n_active):
                for t in range(i + n_active, i + 2 * n_active):
                    of_pair = grad[graph, g, uint32(part[token, s] - at), uint32(part[token, t] - at - size)]
                    to_weight[token, s] += of_pair * weight[token, t]
                    to_weight[token, t] += of_pair * weight[token, s]


@inlined
def rates_of_row(row, head, active, part, weight, blocks, out):
    """out_b = Σ_a Q_a S_ab over the parts a of a query, for every part b of every partition."""
    size, n_active = blocks.shape[2], len(active)
    n_partitions = blocks.shape[1]
    for f in range(n_partitions):
        first, at = f * n_active, f * size
        if size == LANES:
            start, of_head = row * part.shape[1] + first, head * n_partitions * size
            sum_rows_at(1, weight, 0, blocks, size, of_head, part, start, start + n_active, 0, out, at)
            continue
        a, w = part[row, first] - at, weight[row, first]
        for b in range(size):
            out[at + b] = w * blocks[head, f, a, b]
        for s in range(first + 1, first + n_active):
            a, w = part[row, s] - at, weight[row, s]
            for b in range(size):
                out[at + b] += w * blocks[head, f, a, b]


@kernel
def rate_of_key(rates, active, part, weight, key):
    """The rate of an edge to a key from the query that has these rates of all parts."""
    total, n_active, j = weight.dtype.type(0), len(active), uint64(key)
    for group in range(part.shape[1] // (2 * n_active)):
        i = uint64(2 * group * n_active)
        first = second = weight.dtype.type(0)
        for s in range(i, i + n_active):
            first += rates[uint32(part[j, s])] * weight[j, s]
            second += rates[uint32(part[j, s + n_active])] * weight[j, s + n_active]
        total += first * second
    return total


@kernel
def rates_along_rows(start, stop, active, factors, mask, out):
    """The rates of the edges of rows start … stop."""
    query_part, query_weight, blocks, part, weight = factors
    row_ptr, keys, n_queries, n_keys = mask
    heads, n_partitions, size = blocks.shape[:3]
    rates = np.empty(n_partitions * size, blocks.dtype)
    for row in range(start, stop):
        graph = row // n_queries
        rates_of_row(row, graph % heads, active, query_part, query_weight, blocks, rates)
        rates_of_edges(rates, active, part, weight, keys, graph * n_keys, row_ptr[row], row_ptr[row + 1], out)


def rates_of_edges(rates, active, part, weight, *edges):
    """Writes the rates of a query's edges, which are ``keys, offset, start, stop, out``. For use in kernels.

    Edge e, start ≤ e < stop, leads to token offset + keys[e].
    """
    raise NotImplementedError  # to Python; see _rates_of_edges


@overload(rates_of_edges, jit_options=_INLINED)
def _rates_of_edges(rates, active, part, weight, *edges):
    if not can_look_up(weight, active):
        return lambda rates, active, part, weight, *edges: _one_by_one(rates, active, part, weight, *edges)
    return lambda rates, active, part, weight, *edges: (
        fill_rates(rates, active, part, weight, *edges)
        if part.shape[1] == LANES and rates.size * len(active) == LANES * LANES
        else _one_by_one(rates, active, part, weight, *edges)
    )


@kernel
def _one_by_one(rates, active, part, weight, keys, offset, start, stop, out):
    for e in range(start, stop):
        if e + AHEAD < keys.size:
            later = offset + keys[e + AHEAD]
            prefetch(part, later)
            prefetch(weight, later)
        out[e] = rate_of_key(rates, active, part, weight, offset + keys[e])


@kernel
def differentiate_rates(start, stop, grad, active, factors, mask, to_query, to_blocks, to_weight):
    """Fills the gradients of the queries' weights, S and the keys' weights from the edges of chunks start … stop.

    A graph's rows are divided into ``to_weight.shape[0]`` chunks, each with gradients of S and of the graph's keys of
    its own, so that their sums do not depend on who computed them.
    """
    n_chunks, n_queries, n_keys = to_weight.shape[0], mask.n_queries, mask.n_keys
    for number in range(start, stop):
        graph, chunk = number // n_chunks, number % n_chunks
        of_chunk = to_weight[chunk]
        to_blocks[number] = 0
        of_chunk[graph * n_keys : (graph + 1) * n_keys] = 0
        first = graph * n_queries + chunk * n_queries // n_chunks
        last = graph * n_queries + (chunk + 1) * n_queries // n_chunks
        differentiate_along_rows(first, last, grad, active, factors, mask, to_query, to_blocks[number], of_chunk)


@kernel
def differentiate_along_rows(start, stop, grad, active, factors, mask, to_query, to_blocks, to_weight):
    """Fills the gradients of the weights of queries start … stop, and adds those of S and the keys' weights.

    A row's edges give the gradient of its rates T = Q̂ S, from which those of Q̂ and S follow at once. All rows belong to
    one graph, and ``to_blocks`` to its head.
    """
    query_part, query_weight, blocks, part, weight = factors
    row_ptr, keys, n_queries, n_keys = mask
    heads, n_partitions, size = blocks.shape[:3]
    n_active, graph = len(active), start // n_queries
    head = graph % heads
    rates, to_rates = np.empty(n_partitions * size, blocks.dtype), np.empty(n_partitions * size, blocks.dtype)
    for row in range(uint64(start), uint64(stop)):
        rates_of_row(row, head, active, query_part, query_weight, blocks, rates)
        to_rates[:] = 0
        edges = keys, graph * n_keys, row_ptr[row], row_ptr[row + 1]
        gradients_of_edges(grad, rates, active, part, weight, *edges, to_rates, to_weight)
        for s in range(query_part.shape[1]):
            f = s // n_active
            at, of_weight = f * size, grad.dtype.type(0)
            a, w = query_part[row, s] - at, query_weight[row, s]
            if size == LANES:
                here = (f * size + a) * size  # in the blocks of a head
                of_head = head * n_partitions * size * size + here
                of_weight = dot(to_rates, uint64(at), blocks, uint64(of_head), uint64(LANES))
                add_scaled(w, to_rates, at, to_blocks, here)
            else:
                for b in range(size):
                    of_weight += to_rates[at + b] * blocks[head, f, a, b]
                    to_blocks[f, a, b] += w * to_rates[at + b]
            to_query[row, s] = of_weight


def gradients_of_edges(grad, rates, active, part, weight, *rest):
    """Adds the gradients of a query's edges, which are ``keys, offset, start, stop``, see :func:`rates_of_edges`.

    They are added to ``to_rates`` and ``to_weight``, the rest of the arguments.
    """
    raise NotImplementedError  # to Python; see _gradients_of_edges


@overload(gradients_of_edges, jit_options=_INLINED)
def _gradients_of_edges(grad, rates, active, part, weight, *rest):
    if not can_look_up(weight, active):
        return lambda grad, rates, active, part, weight, *rest: _add_one_by_one(
            grad, rates, active, part, weight, *rest
        )
    return lambda grad, rates, active, part, weight, *rest: (
        add_gradients(grad, rates, active, part, weight, *rest)
        if part.shape[1] == LANES and rates.size * len(active) == LANES * LANES
        else _add_one_by_one(grad, rates, active, part, weight, *rest)
    )


@kernel
def _add_one_by_one(grad, rates, active, part, weight, keys, offset, start, stop, to_rates, to_weight):
    n_active = len(active)
    for e in range(uint64(start), uint64(stop)):
        if e + AHEAD < keys.size:
            later = offset + keys[e + AHEAD]
            prefetch(part, later)
            prefetch(weight, later)
            prefetch(to_weight, later)
        key, g = uint64(offset + keys[e]), grad[e]
        for group in range(part.shape[1] // (2 * n_active)):
            i = uint64(2 * group * n_active)
            first = second = weight.dtype.type(0)
            for s in range(i, i + n_active):
                first += rates[uint32(part[key, s])] * weight[key, s]
                second += rates[uint32(part[key, s + n_active])] * weight[key, s + n_active]
            first, second = g * second, g * first  # what each of the two is multiplied by
            for s in range(i, i + n_active):
                t = s + uint64(n_active)
                a, b = uint32(part[key, s]), uint32(part[key, t])
                of_a, of_b = first * rates[a], second * rates[b]
                to_rates[a] += first * weight[key, s]
                to_rates[b] += second * weight[key, t]
                to_weight[key, s] += of_a
                to_weight[key, t] += of_b
