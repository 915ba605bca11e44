"""Two ways to propose keys for a row of edges, both in ascending order and without repetition.

Each kernel says with which probability it proposes a key; :mod:`sbmt.kernels.cpu.draws.rows` keeps or drops it.
"""

import math
from typing import NamedTuple

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.draws.distinct import FEW, new_bitmap, sort_distinct
from sbmt.kernels.cpu.philox import BATCH, fill_exponentials
from sbmt.kernels.cpu.toolchain import kernel

GAPS = 2 * BATCH
CANDIDATE = int(Purpose.CANDIDATE) * MAX_HEADS  # in the head's counter word
WORD = 4294967296.0
_LAST = (1 << 32) - 2  # the last key's words end above it


class Stream(NamedTuple):
    """The address of a row's random numbers."""

    seed: int
    row: int
    head: int
    example: int


class Scratch(NamedTuple):
    """Room for one row at a time."""

    gaps: np.ndarray
    words: np.ndarray
    proposed: np.ndarray  # the keys proposed
    hits: np.ndarray  # the same before they are sorted
    bitmap: np.ndarray  # for sorting them
    line: np.ndarray  # lengths of the clusters, see walk_clusters
    ends: np.ndarray
    points: np.ndarray
    cluster: np.ndarray


@kernel
def new_scratch(n_keys, n_clusters):
    """Scratch for rows of this many keys."""
    hits, bitmap = np.empty(2 * n_keys + GAPS + FEW, np.int32), new_bitmap(n_keys)
    line, ends = np.empty(n_clusters + 1), np.empty(1 << int(math.log2(n_clusters + 1) + 1.0))
    gaps, words, proposed = np.empty(GAPS), np.empty((4, BATCH), np.uint32), np.empty(n_keys, np.int32)
    return Scratch(gaps, words, proposed, hits, bitmap, line, ends, np.empty(GAPS), np.empty(GAPS, np.int32))


@kernel
def skip_through(upper, real, stream, scratch):
    """Proposes every key of ``real`` with probability ``upper``, in geometric steps. Returns how many."""
    seed, row, head, example = stream
    gaps, words, proposed = scratch.gaps, scratch.words, scratch.proposed
    n_real = real.shape[0]
    to_step = -1.0 / math.log1p(-upper) if upper < 1.0 else 0.0
    place, count, block = -1, 0, 0
    while True:
        fill_exponentials(gaps, words, seed, block, row, head + CANDIDATE, example)
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
def walk_clusters(real, cumulative, guide, stream, scratch):
    """Proposes keys hit by Poisson points of rate 1 on a line of clusters, each point of which names a key.

    Cluster v is ``scratch.line[v]`` long, and a key's share of it is its membership, as the graph's tables say; the
    cluster after the last belongs to all real keys alike. Where cluster v is c T_v Σ_j K_jv long, key j is thus
    proposed with probability 1 − e^{−c x_j} for its rate x_j. Keys hit twice are proposed once. Returns how many.
    """
    points, hits, proposed = scratch.points, scratch.hits, scratch.proposed
    end = lay_out(scratch)
    point, block, n_hits = 0.0, 0, 0
    while point < end:
        count = next_points(point, end, block, stream, scratch)
        point = points[-1]
        block += BATCH
        n_hits = make_room(n_hits, count, scratch)
        _name_keys(count, real, proposed.shape[0], cumulative, guide, scratch, hits[n_hits:])
        n_hits += count
    return sort_distinct(hits, 0, n_hits, scratch.bitmap, proposed)


@kernel
def lay_out(scratch):
    """Writes where on the line each cluster ends, and returns its length."""
    line, ends = scratch.line, scratch.ends
    end = 0.0
    for v in range(line.shape[0]):
        end += line[v]
        ends[v] = end
    ends[line.shape[0] :] = np.inf
    return end


@kernel
def next_points(point, end, block, stream, scratch):
    """The next batch of Poisson points and the clusters they fall into; returns how many lie before the end.

    All of a batch are written, so that the last one says where the next batch goes on.
    """
    seed, row, head, example = stream
    gaps, words, ends = scratch.gaps, scratch.words, scratch.ends
    points, cluster = scratch.points, scratch.cluster
    fill_exponentials(gaps, words, seed, block, row, head + CANDIDATE, example)
    count = 0
    for g in range(GAPS):
        point += gaps[g]
        points[g] = point
        count += point < end
    stride = ends.shape[0] // 2  # a power of two
    for i in range(count):
        cluster[i] = 0
    while stride:  # a binary search for all at once: the first cluster that ends beyond the point
        for i in range(count):
            cluster[i] += stride if ends[cluster[i] + stride - 1] <= points[i] else 0
        stride >>= 1
    return count


@kernel
def make_room(n_hits, count, scratch):
    """Keeps only what is distinct of the hits if so many more do not fit; returns how many there are."""
    hits = scratch.hits
    if n_hits + count > hits.shape[0] - FEW:
        n_hits = sort_distinct(hits, 0, n_hits, scratch.bitmap, scratch.proposed)
        hits[:n_hits] = scratch.proposed[:n_hits]
    return n_hits


@kernel
def word_at(offset, length):
    """Where a point lies in a piece of the line of this length, as a whole number of 32 bits."""
    return min(np.int64(max(offset / length, 0.0) * WORD), _LAST)


@kernel
def _name_keys(count, real, n_keys, cumulative, guide, scratch, hits):
    """Writes the keys that the first points name. Each step has its own loop, so that look-ups of points overlap."""
    points, line, ends, cluster = scratch.points, scratch.line, scratch.ends, scratch.cluster
    n_clusters, n_real = line.shape[0] - 1, real.shape[0]
    n_guide = guide.shape[1]
    shift = 32 - int(math.log2(n_guide) + 0.5) if n_guide else 0
    for i in range(count):
        v = cluster[i]
        word = word_at(points[i] - (ends[v] - line[v]), line[v])
        if v == n_clusters:
            hits[i] = word * n_real >> 32
            hits[i] = real[hits[i]]
            continue
        if not n_guide:
            hits[i] = first_above(cumulative[v], 0, n_keys, word)
            continue
        entry = guide[v, word >> shift]
        j = np.int64(entry >> np.uint64(33))
        if (entry >> np.uint64(32)) & np.uint64(1):
            while cumulative[v, j] <= word:
                j += 1
        else:
            j += word >= np.int64(entry & np.uint64(_LAST + 1))
        hits[i] = j


@kernel
def first_above(cumulative, first, count, word):
    """The first of so many keys from ``first`` on whose words end beyond this one; those of the last key do."""
    j, size = 0, count
    while size > 1:
        half = size >> 1
        j += half if cumulative[first + j + half - 1] <= word else 0
        size -= half
    return j
