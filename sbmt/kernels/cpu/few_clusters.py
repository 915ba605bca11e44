"""Tokens that belong to a few clusters each: which, how much, the rates of edges between them, and gradients.

Everything is flattened as in :mod:`sbmt.kernels.cpu.products`. A token's clusters come group by group, equally many of
each, and a group's are numbered after those of the groups before it.
"""

import numpy as np

from sbmt.kernels.cpu.elementary import exp
from sbmt.kernels.cpu.toolchain import kernel

_LANES = 16  # scores that are compared at once


@kernel
def choose_clusters(start, stop, scores, n_groups, chosen, weight):
    """Writes the clusters of largest score of rows start … stop, in ascending order, equally many of each group.

    Their weights are the softmax of the group's scores that were chosen.
    """
    size, n_chosen = scores.shape[1] // n_groups, chosen.shape[1] // n_groups
    largest, lanes = np.empty(n_chosen, scores.dtype), np.empty(_LANES, scores.dtype)
    candidates = np.empty(size + 1, np.int32)
    for row in range(start, stop):
        for group in range(n_groups):
            of_group = scores[row, group * size : (group + 1) * size]
            here = chosen[row, group * n_chosen : (group + 1) * n_chosen]
            least = _lower_bound(of_group, lanes, largest, here)
            n_candidates = 0
            for v in range(size):  # without a branch
                candidates[n_candidates] = v
                n_candidates += of_group[v] >= least
            for s in range(n_chosen):  # whatever the scores, NaN included, these are clusters
                here[s] = s
            largest[:] = -np.inf
            for i in range(n_candidates):
                v = candidates[i]
                if i < n_chosen or of_group[v] > largest[n_chosen - 1]:
                    _insert(of_group[v], v, min(i, n_chosen - 1), largest, here)
            _sort(here)
            of_chosen = weight[row, group * n_chosen : (group + 1) * n_chosen]
            most, total = largest[0], 0.0
            for s in range(n_chosen):
                of_chosen[s] = exp(of_group[here[s]] - most)
                total += of_chosen[s]
                here[s] += group * size
            share = weight.dtype.type(1 / total)
            for s in range(n_chosen):
                of_chosen[s] *= share


@kernel
def _lower_bound(scores, lanes, largest, chosen):
    """A number that at least as many scores reach as are chosen: the last of the largest that lanes have.

    Lane i holds every sixteenth score from the i-th on. Finding its largest is vectorised.
    """
    n_chosen = largest.size
    lanes[:] = -np.inf
    for first in range(0, scores.size - _LANES + 1, _LANES):
        for i in range(_LANES):
            x = scores[first + i]
            lanes[i] = x if x > lanes[i] else lanes[i]
    if n_chosen > _LANES:
        return lanes.dtype.type(-np.inf)
    largest[:] = -np.inf
    for i in range(_LANES):
        if lanes[i] > largest[n_chosen - 1]:
            _insert(lanes[i], i, n_chosen - 1, largest, chosen)
    return largest[n_chosen - 1]


@kernel
def _insert(score, cluster, place, largest, chosen):
    """Inserts a score before those that are smaller and end before ``place``."""
    while place > 0 and score > largest[place - 1]:
        largest[place], chosen[place] = largest[place - 1], chosen[place - 1]
        place -= 1
    largest[place], chosen[place] = score, cluster


@kernel
def _sort(numbers):
    for i in range(1, numbers.size):
        x, place = numbers[i], i
        while place > 0 and numbers[place - 1] > x:
            numbers[place] = numbers[place - 1]
            place -= 1
        numbers[place] = x


@kernel
def differentiate_memberships(start, stop, grad, nodes, clusters, chosen, weight, n_groups, chunk, to_node, to_cluster):
    """Fills the gradients of the nodes, and of the clusters from the rows of each of chunks start … stop.

    With gradients u of the weights w of a group, those of its logits are w (u − Σ w u). A head's rows are divided into
    chunks of equal size, each with a gradient of the clusters of its own, so that their sum does not depend on who
    computed them.
    """
    n_rows, n_chunks, n_chosen = nodes.shape[1], to_cluster.shape[1], chosen.shape[2]
    n_active = n_chosen // n_groups
    for number in range(start, stop):
        head, part = number // n_chunks, number % n_chunks
        sums = to_cluster[head, part]
        sums[:] = 0
        for row in range(part * chunk, min((part + 1) * chunk, n_rows)):
            node, to = nodes[head, row], to_node[head, row]
            to[:] = 0
            for first in range(0, n_chosen, n_active):
                of_group = slice(first, first + n_active)
                u, w, cluster = grad[head, row, of_group], weight[head, row, of_group], chosen[head, row, of_group]
                mean = dot(w, u)
                for s in range(n_active):
                    of_logit = w[s] * (u[s] - mean)
                    add_multiple(of_logit, clusters[head, cluster[s]], to)
                    add_multiple(of_logit, node, sums[cluster[s]])


@kernel
def rates_of_query(cluster, weight, blocks, out):
    """out_b = Σ_a Q_a S_ab over the query's clusters a, for every cluster b; ``blocks`` is (g, k/g, k/g)."""
    n_groups, size = blocks.shape[0], blocks.shape[1]
    n_chosen = cluster.shape[0] // n_groups
    for group in range(n_groups):
        first = group * size
        to = out[first : first + size]
        to[:] = 0
        for s in range(group * n_chosen, (group + 1) * n_chosen):
            add_multiple(weight[s], blocks[group, cluster[s] - first], to)


@kernel
def add_multiple(factor, x, to):
    """Adds factor · x to ``to``."""
    for i in range(to.size):
        to[i] += factor * x[i]


@kernel
def dot(x, y):
    """⟨x, y⟩."""
    total = x.dtype.type(0)
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@kernel
def rates_along_rows(start, stop, tokens, mask, out):
    """out[e] = Q_i S K_j for the edges e = (i, j) of rows start … stop."""
    query_cluster, query_weight, blocks, key_cluster, key_weight = tokens
    row_ptr, keys, n_queries, n_keys = mask
    heads, n_chosen = blocks.shape[0], key_cluster.shape[1]
    rates = np.empty(blocks.shape[1] * blocks.shape[2], out.dtype)
    for row in range(start, stop):
        if row_ptr[row] == row_ptr[row + 1]:
            continue
        graph = row // n_queries
        rates_of_query(query_cluster[row], query_weight[row], blocks[graph % heads], rates)
        for e in range(row_ptr[row], row_ptr[row + 1]):
            key = graph * n_keys + keys[e]
            rate = out.dtype.type(0)
            for s in range(n_chosen):
                rate += rates[key_cluster[key, s]] * key_weight[key, s]
            out[e] = rate


@kernel
def differentiate_queries(start, stop, grad, tokens, mask, chunk, grad_query, grad_blocks):
    """Fills the gradients of the queries, and of S from the rows of each of chunks start … stop.

    A head's rows, those of all examples one after the other, are divided into chunks of equal size. Each has a
    gradient of S of its own, so that their sum does not depend on who computed them.
    """
    query_cluster, query_weight, blocks, key_cluster, key_weight = tokens
    row_ptr, keys, n_queries, n_keys = mask
    heads, n_groups, size = blocks.shape[:3]
    n_examples = (row_ptr.shape[0] - 1) // (heads * n_queries)
    n_chunks, n_chosen = grad_blocks.shape[1], key_cluster.shape[1]
    of_rates = np.empty(n_groups * size, grad_query.dtype)
    for number in range(start, stop):
        head, part = number // n_chunks, number % n_chunks
        to_blocks = grad_blocks[head, part]
        to_blocks[:] = 0
        for place in range(part * chunk, min((part + 1) * chunk, n_examples * n_queries)):
            graph = place // n_queries * heads + head
            row = graph * n_queries + place % n_queries
            grad_query[row] = 0
            if row_ptr[row] == row_ptr[row + 1]:
                continue
            of_rates[:] = 0
            for e in range(row_ptr[row], row_ptr[row + 1]):
                key, g = graph * n_keys + keys[e], grad[e]
                for s in range(n_chosen):
                    of_rates[key_cluster[key, s]] += g * key_weight[key, s]
            for s in range(n_chosen):
                group = s // (n_chosen // n_groups)
                a, of_group = query_cluster[row, s] - group * size, of_rates[group * size : (group + 1) * size]
                grad_query[row, s] = dot(of_group, blocks[head, group, a])
                add_multiple(query_weight[row, s], of_group, to_blocks[group, a])


@kernel
def differentiate_keys(start, stop, grad, tokens, mask, by_key, grad_key):
    """Fills the gradients of keys start … stop; ``tokens`` has the transposes of the blocks in their place."""
    query_cluster, query_weight, blocks, key_cluster, _ = tokens
    row_ptr, _, n_queries, n_keys = mask
    column_ptr, queries, positions = by_key
    heads, n_groups, size = blocks.shape[:3]
    n_chosen = key_cluster.shape[1]
    seen = np.empty(n_groups * size, grad_key.dtype)
    for column in range(start, stop):
        grad_key[column] = 0
        if column_ptr[column] == column_ptr[column + 1]:
            continue
        graph = column // n_keys
        seen[:] = 0
        for i in range(column_ptr[column], column_ptr[column + 1]):
            row, g = graph * n_queries + queries[i], grad[row_ptr[graph * n_queries] + positions[i]]
            for s in range(n_chosen):
                seen[query_cluster[row, s]] += g * query_weight[row, s]
        for s in range(n_chosen):
            group = s // (n_chosen // n_groups)
            line = blocks[graph % heads, group, key_cluster[column, s] - group * size]
            grad_key[column, s] = dot(seen[group * size : (group + 1) * size], line)
