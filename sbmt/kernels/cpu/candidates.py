"""Two ways to propose keys to a row of edges, both ascending and without repetition.

What is proposed with which probability is said here; :mod:`sbmt.kernels.cpu.draws` keeps or drops it.
"""

import math

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.philox import BATCH, fill_exponentials
from sbmt.kernels.cpu.sorting import sort_distinct
from sbmt.kernels.cpu.toolchain import kernel

GAPS = 2 * BATCH
_CANDIDATE = int(Purpose.CANDIDATE) * MAX_HEADS  # in the head's counter word
_WORD = 4294967296.0
_LAST = (1 << 32) - 2  # the last key's words end above it


@kernel
def skip_through(upper, real, n_real, seed, row, head, example, gaps, words, proposed):
    """Proposes every real key with probability ``upper``, in geometric steps. Returns how many."""
    to_step = -1.0 / math.log1p(-upper) if upper < 1.0 else 0.0
    place, count, block = -1, 0, 0
    while True:
        fill_exponentials(gaps, words, seed, block, row, head + _CANDIDATE, example)
        block += BATCH
        for g in range(GAPS):
            gaps[g] = min(gaps[g] * to_step, 1e9)
        for g in range(GAPS):
            place += 1 + int(gaps[g])
            if place >= n_real:
                return count
            proposed[count] = real[place]
            count += 1


@kernel
def walk_clusters(
    query, total, boost, extra, real, n_real, cumulative, guide, seed, row, head, example, gaps, words, line, ends,
    points, cluster, hits, bitmap, proposed,
):  # fmt: skip
    """Proposes key j with probability 1 − e^{−c x_j}: Poisson points on a line of clusters, each of which names a key.

    Cluster v is c T_v Σ_j K_jv long, and a key's share of it is its membership; the cluster after the last, ``extra``
    long, belongs to all real keys alike. Keys hit twice are proposed once. Returns how many were proposed.
    """
    n_clusters = query.shape[0]
    for v in range(n_clusters):
        line[v] = boost * query[v] * total[v]
    line[n_clusters] = extra
    end = 0.0
    for v in range(n_clusters + 1):
        end += line[v]
        ends[v] = end
    ends[n_clusters + 1 :] = np.inf
    point, block, n_hits = 0.0, 0, 0
    while point < end:
        fill_exponentials(gaps, words, seed, block, row, head + _CANDIDATE, example)
        block += BATCH
        count = 0
        for g in range(GAPS):
            point += gaps[g]
            points[count] = point
            count += point < end
        if n_hits + count > hits.shape[0]:  # keep what is distinct, to make room
            n_hits = sort_distinct(hits[:n_hits], bitmap, proposed)
            hits[:n_hits] = proposed[:n_hits]
        _name_keys(points[:count], line, ends, n_clusters, real, n_real, cumulative, guide, cluster, hits[n_hits:])
        n_hits += count
    return sort_distinct(hits[:n_hits], bitmap, proposed)


@kernel
def _name_keys(points, line, ends, n_clusters, real, n_real, cumulative, guide, cluster, hits):
    """The keys that the points name. One loop per step, so that the waits of different points overlap."""
    count, stride = points.shape[0], ends.shape[0] // 2  # the latter a power of two
    for i in range(count):
        cluster[i] = 0
    while stride:  # a binary search for all at once: the first cluster that ends beyond the point
        for i in range(count):
            cluster[i] += stride if ends[cluster[i] + stride - 1] <= points[i] else 0
        stride >>= 1
    shift = 32 - int(math.log2(guide.shape[1]) + 0.5)
    for i in range(count):
        v = cluster[i]
        share = max((points[i] - (ends[v] - line[v])) / line[v], 0.0)
        word = min(np.int64(share * _WORD), _LAST)
        if v == n_clusters:
            hits[i] = word * n_real >> 32
            hits[i] = real[hits[i]]
            continue
        entry = guide[v, word >> shift]
        j = np.int64(entry >> np.uint64(33))
        if (entry >> np.uint64(32)) & np.uint64(1):
            while cumulative[v, j] <= word:
                j += 1
        else:
            j += word >= np.int64(entry & np.uint64(_LAST + 1))
        hits[i] = j
