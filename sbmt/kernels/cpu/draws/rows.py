"""Draws rows of independent Bernoulli edges: proposes keys, and keeps each with the probability that remains."""

import math

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.draws.candidates import Stream, new_scratch, skip_through, walk_clusters
from sbmt.kernels.cpu.elementary import log
from sbmt.kernels.cpu.philox import BATCH, fill_words
from sbmt.kernels.cpu.products import dots
from sbmt.kernels.cpu.toolchain import kernel

_KEEP = int(Purpose.KEEP) * MAX_HEADS  # in the head's counter word
_WORD = 4294967296.0


@kernel
def draw_pieces(start, stop, pieces, *arguments):
    """Draws the rows that are left of pieces start … stop, as many of each as there is room for."""
    row, end, found, out = pieces
    for piece in range(start, stop):
        row[piece], found[piece] = draw_rows(row[piece], end[piece], out[piece], *arguments)


@kernel
def draw_rows(start, stop, out, model, keys, rows, boost, by_clusters, tables, seed, first_example, counts):
    """Draws rows start … stop into ``out`` until it is full; returns which row is next, and how many keys there are.

    ``keys`` and ``rows`` are their bounds. ``boost`` is the factor c of each row's candidate rates, and ``by_clusters``
    tells which rows are drawn by :func:`walk_clusters` rather than by :func:`skip_through`.
    """
    query, key, is_real_query, real, n_real, heads, exploration, is_poisson = model
    _, total, at_least, at_most = keys
    most, upper, _ = rows
    table_of, cumulative, guide = tables
    n_queries, n_keys = is_real_query.shape[1], real.shape[1]
    scratch = new_scratch(n_keys, query.shape[1])
    proposed, words = scratch.proposed, scratch.words
    doubtful, where = np.empty(n_keys, np.int32), np.empty(n_keys, np.int32)
    coins, rates = np.empty(n_keys + 4 * BATCH), np.empty(n_keys, query.dtype)
    end = 0
    for row in range(start, stop):
        counts[row] = 0
        if upper[row] <= 0.0:
            continue
        graph = row // n_queries
        example, head = graph // heads, graph % heads
        stream = Stream(seed, row % n_queries, head, example + first_example)
        of_graph = slice(graph * n_keys, (graph + 1) * n_keys)
        real_keys = real[example, : n_real[example]]
        if by_clusters[row]:
            c, table = boost[row], table_of[graph]
            _measure_line(query[row], total[graph], c, c * exploration * n_real[example], scratch.line)
            count = walk_clusters(real_keys, cumulative[table], guide[table], stream, scratch)
            n_doubtful = 0
            if not is_poisson:
                toss(count, stream, words, coins)
                n_doubtful = _doubt_hits(count, c, coins, where)
        else:
            c = 0.0
            count = skip_through(upper[row], real_keys, stream, scratch)
            toss(count, stream, words, coins)
            _to_rates(count, upper[row], is_poisson, coins)
            low, high = at_least[of_graph], at_most[of_graph]
            n_doubtful = _doubt_visits(count, most[row], exploration, low, high, coins, proposed, where)
        for i in range(n_doubtful):
            doubtful[i] = proposed[where[i]]
        dots(query[row], key, graph * n_keys, doubtful, 0, n_doubtful, rates)
        for i in range(n_doubtful):
            x, coin = float(rates[i]) + exploration, coins[where[i]]
            is_kept = coin < x if c == 0.0 else coin * -math.expm1(-c * x) < min(x, 1.0)
            if not is_kept:
                proposed[where[i]] = -1
        if end + count > out.shape[0]:
            return row, end
        found = end
        for i in range(count):
            out[found] = proposed[i]
            found += proposed[i] >= 0
        counts[row] = found - end
        end = found
    return stop, end


@kernel
def _measure_line(query, total, boost, extra, line):
    """Writes the lengths of the clusters on a row's line, and that of exploration, which all keys share equally."""
    n_clusters = query.shape[0]
    for v in range(n_clusters):
        line[v] = boost * query[v] * total[v]
    line[n_clusters] = extra


@kernel
def toss(count, stream, words, coins):
    """Writes a uniform for each proposed key."""
    seed, row, head, example = stream
    for first in range(0, count, 4 * BATCH):
        fill_words(words, seed, first // 4, row, head + _KEEP, example)
        for i in range(4):
            for b in range(BATCH):
                coins[first + i * BATCH + b] = (float(words[i, b]) + 0.5) / _WORD


@kernel
def _doubt_hits(count, c, coins, where):
    """Lists the hits whose rate must be computed: the others are kept whatever it is, since u < 1/c."""
    n_doubtful = 0
    for i in range(count):
        where[n_doubtful] = i
        n_doubtful += coins[i] * c >= 1.0
    return n_doubtful


@kernel
def _to_rates(count, upper, is_poisson, coins):
    """Turns each uniform u into the rate r above which a visited key is kept: u p̄ < p(x) if and only if r < x."""
    for i in range(count):
        coins[i] *= upper
    if is_poisson:
        for i in range(count):
            coins[i] = -log(1.0 - coins[i])


@kernel
def _doubt_visits(count, most, exploration, at_least, at_most, coins, proposed, where):
    """Drops the visits whose rate is certainly too small, and lists those whose rate must be computed."""
    n_doubtful = 0
    for i in range(count):
        j, needed = proposed[i], coins[i] - exploration
        where[n_doubtful] = i
        is_hopeless = needed >= at_most[j] * most
        n_doubtful += (needed >= at_least[j] * most) & (not is_hopeless)
        proposed[i] = -1 if is_hopeless else j
    return n_doubtful
