"""Drawing edges between tokens that belong to a few clusters each: from the row to a cluster, from there to a key."""

import math
from typing import NamedTuple

import numpy as np
from torch import Tensor

from sbmt.kernels.cpu.draws.bounds import real_tokens
from sbmt.kernels.cpu.draws.candidates import Stream, new_scratch, walk_members
from sbmt.kernels.cpu.draws.rows import toss
from sbmt.kernels.cpu.draws.sample import join
from sbmt.kernels.cpu.few_clusters import rates_of_query
from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.philox import BATCH
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import FewClusters, as_arrays

_WORD = 4294967296.0
_LAST = 4294967295  # random words stay below it
_ROOM = 1 << 15  # keys that are drawn into one array
_WORK = 512  # roughly, per row
_DENSE = 0.5  # points per key from which on a row is drawn key by key


class Members(NamedTuple):
    """The keys of each cluster v of a graph: ``key[first[graph, v] : first[graph, v + 1]]``, ascending.

    ``cumulative`` sums their weights up in units of 2⁻³² of the ``total``, as
    :class:`~sbmt.kernels.cpu.draws.tables.Tables` does.
    """

    first: np.ndarray  # (graphs, k + 1)
    key: np.ndarray
    cumulative: np.ndarray
    total: np.ndarray  # (graphs, k)


def sample_few_clusters(
    tokens: FewClusters,
    shape: tuple[int, int, int, int],
    masks: tuple[Tensor | None, Tensor | None],
    exploration: float,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    r"""``row_ptr`` and ``keys`` of a mask whose edges have probability $1 - e^{-(r_{ij} + \delta)}$, independently.

    A row's Poisson points lie on a line on which cluster b is $T_{ib} \sum_j \hat K_{jb}$ long, and exploration
    $\delta n$; each names a key in proportion to its membership, and keys named twice are merged. There is nothing to
    thin, and no product with any key.

    Cost: O(n (k + a) + points · log n), for a clusters per token.
    """
    batch, heads, n_queries, n_keys = shape
    model = as_arrays(tokens)
    n_clusters = tokens.blocks.shape[1] * tokens.blocks.shape[2]
    n_graphs, n_entries = batch * heads, n_keys * tokens.key_weight.shape[1]
    first = np.empty((n_graphs, n_clusters + 1), np.int64)
    total = np.empty((n_graphs, n_clusters))
    room = np.empty(n_graphs * n_entries, np.int32), np.empty(n_graphs * n_entries, np.uint32)
    members = Members(first, *room, total)
    in_parallel(list_members, equal_parts(n_graphs, 4 * n_entries), model, n_keys, members)
    real = real_tokens(shape, *masks)
    counts = np.empty(n_graphs * n_queries, np.int64)

    def draw(start: int, stop: int) -> list[np.ndarray]:
        pieces = []
        while start < stop:
            out = np.empty(max(_ROOM, n_keys), np.int32)
            given = start, stop, model, members, real, heads, exploration, seed, first_example
            start, found = draw_rows(*given, counts, out)
            pieces.append(out[:found])
        return pieces

    return join(counts, [piece for part in in_parallel(draw, equal_parts(counts.size, _WORK)) for piece in part])


@kernel
def list_members(start, stop, model, n_keys, members):
    """Lists the members of graphs start … stop by counting: of each cluster first how many, then which."""
    _, _, _, cluster, weight = model
    first, key, cumulative, total = members
    n_clusters, n_chosen = total.shape[1], cluster.shape[1]
    for graph in range(start, stop):
        begin, sums = first[graph], total[graph]
        begin[:] = 0
        sums[:] = 0.0
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            for s in range(n_chosen):
                if weight[j, s] > 0:
                    begin[cluster[j, s]] += 1
                    sums[cluster[j, s]] += weight[j, s]
        place = graph * n_keys * n_chosen
        for v in range(n_clusters):  # counts become starts
            count = begin[v]
            begin[v] = place
            place += count
        begin[n_clusters] = place
        so_far = np.zeros(n_clusters)
        for j in range(graph * n_keys, (graph + 1) * n_keys):
            for s in range(n_chosen):
                v, w = cluster[j, s], weight[j, s]
                if w > 0:
                    so_far[v] += w
                    key[begin[v]] = j - graph * n_keys
                    cumulative[begin[v]] = np.uint32(min(so_far[v] / sums[v] * _WORD + 0.5, _LAST))
                    begin[v] += 1
        for v in range(n_clusters - 1, -1, -1):  # each start has moved to its end, which is the next one's start
            if begin[v] > (begin[v - 1] if v else graph * n_keys * n_chosen):
                cumulative[begin[v] - 1] = np.uint32(_LAST)
            begin[v] = begin[v - 1] if v else graph * n_keys * n_chosen


@kernel
def draw_rows(start, stop, model, members, real, heads, exploration, seed, first_example, counts, out):
    """Draws rows start … stop into ``out`` until it is full; returns which row is next, and how many keys there are."""
    cluster, weight, blocks, key_cluster, key_weight = model
    first, member, cumulative, total = members
    is_real_query, real_keys, n_real = real
    n_queries, n_keys, n_clusters = is_real_query.shape[1], real_keys.shape[1], total.shape[1]
    scratch = new_scratch(n_keys, n_clusters)
    rates, coins = np.empty(n_clusters, weight.dtype), np.empty(n_keys + 4 * BATCH)
    line, proposed = scratch.line, scratch.proposed
    end = 0
    for row in range(start, stop):
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        counts[row] = 0
        if not is_real_query[example, row % n_queries]:
            continue
        keys = real_keys[example, : n_real[example]]
        rates_of_query(cluster[row], weight[row], blocks[head], rates)
        for v in range(n_clusters):
            line[v] = rates[v] * total[graph, v]
        line[n_clusters] = exploration * n_real[example]
        stream = Stream(seed, row % n_queries, head, example + first_example)
        if line.sum() < _DENSE * n_real[example]:
            count = walk_members(keys, first[graph], member, cumulative, stream, scratch)
        else:
            toss(keys.size, stream, scratch.words, coins)
            of_graph = slice(graph * n_keys, (graph + 1) * n_keys)
            count = _visit(keys, rates, key_cluster[of_graph], key_weight[of_graph], exploration, coins, proposed)
        if end + count > out.shape[0]:
            return row, end
        out[end : end + count] = proposed[:count]
        counts[row] = count
        end += count
    return stop, end


@kernel
def _visit(keys, rates, cluster, weight, exploration, coins, found):
    """Writes the keys whose coin is below their probability, and returns how many there are."""
    count = 0
    for i in range(keys.size):
        j, rate = keys[i], exploration
        for s in range(cluster.shape[1]):
            rate += rates[cluster[j, s]] * weight[j, s]
        found[count] = j
        count += coins[i] < -math.expm1(-rate)
    return count
