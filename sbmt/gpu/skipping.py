"""Bernoulli edges of a row by geometric steps over its keys, which come out in order."""

import triton.language as tl

from sbmt.gpu.philox import philox
from sbmt.gpu.toolchain import kernel

COLUMNS = tl.constexpr(16)  # of the rate factors, at a time
CANDIDATE = tl.constexpr(2 << 28)  # of sbmt.counter_rng: the purpose above the head's 28 bits


@kernel
def probability(rate, IS_POISSON: tl.constexpr):
    """The link."""
    return 1 - tl.exp(-rate) if IS_POISSON else tl.minimum(rate, 1.0)


@kernel
def uniform(words):
    """(word + ½) / 2³² in float64."""
    return (words.to(tl.float64) + 0.5) / 4294967296.0


@kernel
def skip(
    query_rate, key_rate, lowest, highest, bound, bound_rate, delta_in, key_mask, row_ptr, out,
    seed, first_example, n_heads, n_queries, n_keys,
    CLUSTERS: tl.constexpr, VISITS: tl.constexpr, IS_POISSON: tl.constexpr, IS_COUNT: tl.constexpr,
):  # fmt: skip
    """Counts the edges of a row, or writes their keys from ``row_ptr[row]`` on: both draw the same.

    Keys are visited with probability ``bound``, by gaps of ⌊E / −ln(1 − bound)⌋ for exponential E, and kept with
    probability p / bound. ``lowest`` and ``highest`` times ``bound_rate`` enclose the rate of a key, which is formed
    only for coins that fall between.
    """
    row = tl.program_id(0).to(tl.int64)
    graph = row // n_queries
    first = graph * n_keys
    largest, largest_rate = tl.load(bound + row), tl.load(bound_rate + row)
    slope = tl.where(largest < 1, -tl.log(1 - tl.minimum(largest, 0.9999999999999999)), float("inf"))
    delta = tl.load(delta_in)
    number = tl.arange(0, VISITS // 2).to(tl.uint32)
    c1 = tl.zeros_like(number) + (row % n_queries).to(tl.uint32)
    c2 = tl.zeros_like(number) + (graph % n_heads + CANDIDATE).to(tl.uint32)
    c3 = tl.zeros_like(number) + (graph // n_heads + first_example).to(tl.uint32)
    position = tl.where(largest > 0, -1, n_keys).to(tl.int64)
    furthest = tl.full((), 0, tl.float64) + n_keys
    n_edges = tl.full((), 0, tl.int64)
    start = tl.full((), 0, tl.int64) if IS_COUNT else tl.load(row_ptr + row)
    while position < n_keys:
        w0, w1, w2, w3 = philox(seed.to(tl.int64), number, c1, c2, c3)
        gap_words, coins = tl.interleave(w0, w2), tl.interleave(w1, w3)
        gaps = tl.minimum(-tl.log(uniform(gap_words)) / slope, furthest).to(tl.int64)
        keys = position + tl.cumsum(gaps + 1, 0)
        is_visited = keys < n_keys
        if key_mask is not None:
            is_visited &= tl.load(key_mask + graph // n_heads * n_keys + keys, is_visited, other=0) != 0
        limit = uniform(coins) * largest
        low = tl.load(lowest + first + keys, is_visited, other=0.0).to(tl.float64) * largest_rate + delta
        high = tl.load(highest + first + keys, is_visited, other=0.0).to(tl.float64) * largest_rate + delta
        is_kept = is_visited & (limit < probability(low, IS_POISSON))
        is_unsure = is_visited & (limit < probability(high, IS_POISSON)) & ~is_kept
        if tl.max(is_unsure.to(tl.int32), 0) > 0:
            rates = tl.zeros((VISITS,), tl.float64) + delta
            for first_column in range(0, CLUSTERS, COLUMNS):  # some at a time: all of them would not fit into registers
                columns = first_column + tl.arange(0, COLUMNS)
                t = tl.load(query_rate + row * CLUSTERS + columns, columns < CLUSTERS, other=0.0).to(tl.float64)
                places = (first + keys)[:, None] * CLUSTERS + columns[None, :]
                k = tl.load(key_rate + places, is_unsure[:, None] & (columns < CLUSTERS)[None, :], other=0.0)
                rates += tl.sum(k.to(tl.float64) * t[None, :], 1)
            is_kept |= is_unsure & (limit < probability(rates, IS_POISSON))
        kept = is_kept.to(tl.int64)
        if not IS_COUNT:
            tl.store(out + start + n_edges + tl.cumsum(kept, 0) - 1, keys, is_kept)
        n_edges += tl.sum(kept, 0)
        position = tl.max(keys, 0)
        number += VISITS // 2
    if IS_COUNT:
        tl.store(out + row, n_edges)
