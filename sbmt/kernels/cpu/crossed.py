"""Tokens in a few parts of several partitions: which, how much, the rates of edges between them, and gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`. A token's parts come partition by partition, equally
many of each, and a partition's are numbered after those of the partitions before it. Partitions 2g and 2g + 1 are
crossed: group g adds the product of their rates to the rate of an edge.
"""

import numpy as np

from sbmt.kernels.cpu.elementary import exp
from sbmt.kernels.cpu.toolchain import kernel

_LANES = 64  # rows whose scores are compared at once


@kernel
def choose_parts(start, stop, scores, n_partitions, chosen, weight):
    """Writes the parts of largest score of rows start … stop, in ascending order, equally many of each partition.

    Their weights are the softmax of the partition's scores that were chosen. ``scores`` is ``(parts, rows)``: rows lie
    side by side, and are compared at once.
    """
    size, n_active = scores.shape[0] // n_partitions, chosen.shape[1] // n_partitions
    largest, best = np.empty((n_active, _LANES), scores.dtype), np.empty((n_active, _LANES), np.int32)
    score, part = np.empty(_LANES, scores.dtype), np.empty(_LANES, np.int32)
    for base in range(start, stop, _LANES):
        n_rows = min(_LANES, stop - base)
        for f in range(n_partitions):
            for s in range(n_active):  # whatever the scores, NaN included, these are parts
                largest[s] = -np.inf
                best[s] = s
            for v in range(size):
                for r in range(n_rows):
                    score[r], part[r] = scores[f * size + v, base + r], v
                for s in range(n_active):  # the larger one stays, the other goes on
                    for r in range(n_rows):
                        x, y, p, q = score[r], largest[s, r], part[r], best[s, r]
                        largest[s, r], best[s, r] = (x, p) if x > y else (y, q)
                        score[r], part[r] = (y, q) if x > y else (x, p)
            for r in range(n_rows):
                _write_softmax(base + r, f, size, r, largest, best, chosen, weight)


@kernel
def _write_softmax(row, f, size, lane, largest, best, chosen, weight):
    """Writes the parts of one partition that a row is in, sorted, and their weights."""
    n_active, total = largest.shape[0], 0.0
    first = f * n_active
    for s in range(n_active):
        w, part, place = exp(largest[s, lane] - largest[0, lane]), best[s, lane] + f * size, first + s
        while place > first and chosen[row, place - 1] > part:
            chosen[row, place], weight[row, place] = chosen[row, place - 1], weight[row, place - 1]
            place -= 1
        chosen[row, place], weight[row, place] = part, w
        total += w
    for place in range(first, first + n_active):
        weight[row, place] /= total


@kernel
def differentiate_memberships(start, stop, grad, nodes, centres, chosen, weight, n_active, chunk, to_node, to_centre):
    """Fills the gradients of the nodes, and of the centres from the rows of each of chunks start … stop.

    With gradients u of the weights w of a partition, those of its logits are w (u − Σ w u). A head's rows are divided
    into chunks of equal size, each with a gradient of the centres of its own, so that their sum does not depend on who
    computed them.
    """
    n_rows, n_chunks, n_chosen, width = nodes.shape[1], to_centre.shape[1], chosen.shape[2], nodes.shape[2]
    for number in range(start, stop):
        head, chunk_ = number // n_chunks, number % n_chunks
        to_centre[head, chunk_] = 0
        for row in range(chunk_ * chunk, min((chunk_ + 1) * chunk, n_rows)):
            to_node[head, row] = 0
            for first in range(0, n_chosen, n_active):
                mean = grad.dtype.type(0)
                for s in range(first, first + n_active):
                    mean += weight[head, row, s] * grad[head, row, s]
                for s in range(first, first + n_active):
                    of_logit, a = weight[head, row, s] * (grad[head, row, s] - mean), chosen[head, row, s]
                    for x in range(width):
                        to_node[head, row, x] += of_logit * centres[head, a, x]
                        to_centre[head, chunk_, a, x] += of_logit * nodes[head, row, x]


@kernel
def rates_of_queries(start, stop, chosen, weight, blocks, n_queries, out):
    """out_b = Σ_a Q_a S_ab over the parts a of each of queries start … stop, for every part b."""
    heads, n_partitions, size = blocks.shape[:3]
    n_active = chosen.shape[1] // n_partitions
    for row in range(start, stop):
        head = row // n_queries % heads
        out[row] = 0
        for s in range(chosen.shape[1]):
            f = s // n_active
            at = f * size
            a, w = chosen[row, s] - at, weight[row, s]
            for b in range(size):
                out[row, at + b] += w * blocks[head, f, a, b]


@kernel
def differentiate_queries(start, stop, grad, chosen, weight, blocks, n_queries, chunk, to_weight, to_blocks):
    """Fills the gradients of the queries' weights, and of S from the rows of each of chunks start … stop.

    A head's rows, those of all examples one after the other, are divided as in :func:`differentiate_memberships`.
    """
    heads, n_partitions, size = blocks.shape[:3]
    n_examples, n_chunks = chosen.shape[0] // (heads * n_queries), to_blocks.shape[1]
    n_active = chosen.shape[1] // n_partitions
    for number in range(start, stop):
        head, chunk_ = number // n_chunks, number % n_chunks
        to_blocks[head, chunk_] = 0
        for place in range(chunk_ * chunk, min((chunk_ + 1) * chunk, n_examples * n_queries)):
            row = (place // n_queries * heads + head) * n_queries + place % n_queries
            for s in range(chosen.shape[1]):
                f = s // n_active
                at = f * size
                a, w, total = chosen[row, s] - at, weight[row, s], grad.dtype.type(0)
                for b in range(size):
                    total += grad[row, at + b] * blocks[head, f, a, b]
                    to_blocks[head, chunk_, f, a, b] += w * grad[row, at + b]
                to_weight[row, s] = total


# What follows edges indexes arrays directly: a view of a row costs as much as the few multiplications done with it.


@kernel
def rate_of_key(rates, row, part, weight, key, n_active):
    """The rate of an edge from a query, whose rates of all parts are a row, to a key."""
    total, i = weight.dtype.type(0), 0
    while i < part.shape[1]:
        first = second = weight.dtype.type(0)
        for s in range(i, i + n_active):
            first += rates[row, part[key, s]] * weight[key, s]
        i += n_active
        for s in range(i, i + n_active):
            second += rates[row, part[key, s]] * weight[key, s]
        i += n_active
        total += first * second
    return total


@kernel
def rates_along_rows(start, stop, factors, mask, out):
    """The rates of the edges of rows start … stop."""
    rates, part, weight, n_partitions = factors
    row_ptr, keys, n_queries, n_keys = mask
    n_active = part.shape[1] // n_partitions
    for row in range(start, stop):
        offset = row // n_queries * n_keys
        for e in range(row_ptr[row], row_ptr[row + 1]):
            out[e] = rate_of_key(rates, row, part, weight, offset + keys[e], n_active)


@kernel
def differentiate_rates(start, stop, grad, factors, mask, to_rates, to_weight):
    """Fills the gradients of the queries' rates and the keys' weights of graphs start … stop."""
    rates, part, weight, n_partitions = factors
    row_ptr, keys, n_queries, n_keys = mask
    n_active = part.shape[1] // n_partitions
    for graph in range(start, stop):
        to_weight[graph * n_keys : (graph + 1) * n_keys] = 0
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            to_rates[row] = 0
            for e in range(row_ptr[row], row_ptr[row + 1]):
                key, g, i = graph * n_keys + keys[e], grad[e], 0
                while i < part.shape[1]:
                    middle = i + n_active
                    first = second = weight.dtype.type(0)
                    for s in range(i, middle):
                        first += rates[row, part[key, s]] * weight[key, s]
                    for s in range(middle, middle + n_active):
                        second += rates[row, part[key, s]] * weight[key, s]
                    first, second = g * second, g * first  # what each of the two is multiplied by
                    for s in range(i, middle):
                        to_rates[row, part[key, s]] += first * weight[key, s]
                        to_weight[key, s] += first * rates[row, part[key, s]]
                    for s in range(middle, middle + n_active):
                        to_rates[row, part[key, s]] += second * weight[key, s]
                        to_weight[key, s] += second * rates[row, part[key, s]]
                    i = middle + n_active


@kernel
def sum_pairs(start, stop, factors, n_keys, total):
    """Fills ``total``, ``(graphs, g, s, s)``: how much the keys of graphs start … stop are in each pair."""
    rates, part, weight, n_partitions = factors
    size, n_active = rates.shape[1] // n_partitions, part.shape[1] // n_partitions
    for graph in range(start, stop):
        total[graph] = 0
        for key in range(graph * n_keys, (graph + 1) * n_keys):
            for g in range(n_partitions // 2):
                i, at = 2 * g * n_active, 2 * g * size
                for s in range(i, i + n_active):
                    for t in range(i + n_active, i + 2 * n_active):
                        a, b = part[key, s] - at, part[key, t] - at - size
                        total[graph, g, a, b] += weight[key, s] * weight[key, t]


@kernel
def sum_rates(start, stop, factors, n_queries, total, out):
    """out_i = Σ_j r_ij for rows start … stop."""
    rates, n_partitions = factors.rates, factors.n_partitions
    size = rates.shape[1] // n_partitions
    for row in range(start, stop):
        graph, so_far = row // n_queries, 0.0
        for g in range(n_partitions // 2):
            at = 2 * g * size
            for a in range(size):
                along = total.dtype.type(0)
                for b in range(size):
                    along += rates[row, at + size + b] * total[graph, g, a, b]
                so_far += rates[row, at + a] * along
        out[row] = so_far


@kernel
def differentiate_sums(start, stop, grad, factors, n_queries, n_keys, total, to_rates, to_weight):
    """Fills the gradients of the queries' rates and the keys' weights of graphs start … stop; ``grad`` has one each."""
    rates, part, weight, n_partitions = factors
    size, n_active = rates.shape[1] // n_partitions, part.shape[1] // n_partitions
    pairs = np.empty(total.shape[1:], rates.dtype)  # Σ_i T_ia T_ib, the gradient of how much keys are in a pair
    for graph in range(start, stop):
        pairs[:] = 0
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            to_rates[row] = 0
            for g in range(n_partitions // 2):
                at, middle = 2 * g * size, (2 * g + 1) * size
                for a in range(size):
                    along, of_first = rates.dtype.type(0), rates[row, at + a]
                    for b in range(size):
                        of_second = rates[row, middle + b]
                        along += of_second * total[graph, g, a, b]
                        pairs[g, a, b] += of_first * of_second
                        to_rates[row, middle + b] += grad[graph] * of_first * total[graph, g, a, b]
                    to_rates[row, at + a] = grad[graph] * along
        for key in range(graph * n_keys, (graph + 1) * n_keys):
            to_weight[key] = 0
            for g in range(n_partitions // 2):
                i, at = 2 * g * n_active, 2 * g * size
                for s in range(i, i + n_active):
                    for t in range(i + n_active, i + 2 * n_active):
                        of_pair = grad[graph] * pairs[g, part[key, s] - at, part[key, t] - at - size]
                        to_weight[key, s] += of_pair * weight[key, t]
                        to_weight[key, t] += of_pair * weight[key, s]
