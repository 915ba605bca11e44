"""Drawing rows of independent Bernoulli edges: propose keys, then keep each with what is missing to its probability."""

import math

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.candidates import GAPS, skip_through, walk_clusters
from sbmt.kernels.cpu.elementary import log
from sbmt.kernels.cpu.philox import BATCH, fill_words
from sbmt.kernels.cpu.products import dots
from sbmt.kernels.cpu.toolchain import kernel

_KEEP = int(Purpose.KEEP) * MAX_HEADS  # in the head's counter word
_WORD = 4294967296.0


@kernel
def draw_rows(
    start, stop, query, key, real, n_real, most, upper, boost, at_least, at_most, total, table_of, cumulative, guide,
    by_clusters, exploration, is_poisson, seed, n_queries, n_keys, heads, first_example, counts, out,
):  # fmt: skip
    """Draws rows start … stop into ``out``, one after the other; returns how many keys, or −1 if it is too short."""
    gaps, words = np.empty(GAPS), np.empty((4, BATCH), np.uint32)
    n_clusters = query.shape[1]
    line, points = np.empty(n_clusters + 1), np.empty(GAPS)
    ends = np.empty(1 << int(math.log2(n_clusters + 1) + 1.0))
    cluster, hits = np.empty(GAPS, np.int32), np.empty(2 * n_keys + GAPS, np.int32)
    bitmap = np.zeros((n_keys + 63) // 64, np.uint64)
    proposed, doubtful, where = (np.empty(n_keys, np.int32), np.empty(n_keys, np.int32), np.empty(n_keys, np.int32))
    coins, rates = np.empty(n_keys + 4 * BATCH), np.empty(n_keys, query.dtype)
    end = 0
    for row in range(start, stop):
        counts[row] = 0
        if upper[row] <= 0.0:
            continue
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        address = seed, row % n_queries, head, example + first_example
        keys = slice(graph * n_keys, (graph + 1) * n_keys)
        if by_clusters[row]:
            c, table = boost[row], table_of[graph]
            count = walk_clusters(
                query[row], total[graph], c, c * exploration * n_real[example], real[example], n_real[example],
                cumulative[table], guide[table], *address, gaps, words, line, ends, points, cluster, hits, bitmap,
                proposed,
            )  # fmt: skip
            n_doubtful = 0
            if not is_poisson:
                _toss(count, *address, words, coins)
                n_doubtful = _doubt_hits(count, c, coins, where)
        else:
            c = 0.0
            count = skip_through(upper[row], real[example], n_real[example], *address, gaps, words, proposed)
            _toss(count, *address, words, coins)
            _to_rates(count, upper[row], is_poisson, coins)
            n_doubtful = _doubt_visits(
                count, most[row], exploration, at_least[keys], at_most[keys], coins, proposed, where
            )
        for i in range(n_doubtful):
            doubtful[i] = proposed[where[i]]
        dots(query[row], key, graph * n_keys, doubtful, 0, n_doubtful, rates)
        for i in range(n_doubtful):
            x, coin = float(rates[i]) + exploration, coins[where[i]]
            is_kept = coin < x if c == 0.0 else coin * -math.expm1(-c * x) < min(x, 1.0)
            if not is_kept:
                proposed[where[i]] = -1
        found = end
        for i in range(count):
            if found == out.shape[0]:
                return -1
            out[found] = proposed[i]
            found += proposed[i] >= 0
        counts[row] = found - end
        end = found
    return end


@kernel
def _toss(count, seed, row, head, example, words, coins):
    """A uniform for each proposed key."""
    for first in range(0, count, 4 * BATCH):
        fill_words(words, seed, first // 4, row, head + _KEEP, example)
        for i in range(4):
            for b in range(BATCH):
                coins[first + i * BATCH + b] = (float(words[i, b]) + 0.5) / _WORD


@kernel
def _doubt_hits(count, c, coins, where):
    """Where the product must be known: a hit stands whatever its rate if u < 1/c."""
    n_doubtful = 0
    for i in range(count):
        where[n_doubtful] = i
        n_doubtful += coins[i] * c >= 1.0
    return n_doubtful


@kernel
def _to_rates(count, upper, is_poisson, coins):
    """Turns each uniform u into the rate above which a visited key is kept: u p̄ < p(x) if and only if rate < x."""
    for i in range(count):
        coins[i] *= upper
    if is_poisson:
        for i in range(count):
            coins[i] = -log(1.0 - coins[i])


@kernel
def _doubt_visits(count, most, exploration, at_least, at_most, coins, proposed, where):
    """Drops the visits whose rate is too small for certain; lists those whose rate must be known."""
    n_doubtful = 0
    for i in range(count):
        j, needed = proposed[i], coins[i] - exploration
        where[n_doubtful] = i
        is_hopeless = needed >= at_most[j] * most
        n_doubtful += (needed >= at_least[j] * most) & (not is_hopeless)
        proposed[i] = -1 if is_hopeless else j
    return n_doubtful
