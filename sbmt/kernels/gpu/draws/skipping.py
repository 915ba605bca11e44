"""Bernoulli edges of a row by geometric steps over its keys, which come out in order."""

import triton.language as tl

from sbmt.kernels.gpu.philox import philox
from sbmt.kernels.gpu.tiles.forward import poisson_link
from sbmt.kernels.gpu.toolchain import kernel

COLUMNS = tl.constexpr(8)  # of the rate factors, at a time
CANDIDATE, KEEP = tl.constexpr(2 << 28), tl.constexpr(3 << 28)  # of sbmt.counter_rng: purposes above the head's bits


@kernel
def probability(rate, IS_POISSON: tl.constexpr):
    """The link."""
    if not IS_POISSON:
        return tl.minimum(rate, 1.0)
    elif rate.dtype == tl.float64:
        return 1 - tl.exp(-rate)
    else:
        return poisson_link(rate)


@kernel
def words_from(seed, first_block, row, head, example, N: tl.constexpr):
    """Four words each of ``N`` blocks of a row's stream."""
    blocks = (first_block + tl.arange(0, N)).to(tl.uint32)
    same = tl.zeros_like(blocks)
    return philox(seed, blocks, same + row.to(tl.uint32), same + head.to(tl.uint32), same + example.to(tl.uint32))


@kernel
def exponential(upper, lower):
    """−ln of 53-bit uniforms: short ones would leave keys out where gaps are long."""
    return -tl.log(((upper >> 5).to(tl.float64) * 67108864.0 + (lower >> 6).to(tl.float64) + 0.5) / 9007199254740992.0)


@kernel
def skip(
    query_rate, key_rate, lowest, highest, bound, stride, bound_rate, delta_in, key_mask, row_ptr, out,
    seed, first_example, n_heads, n_queries, n_keys,
    CLUSTERS: tl.constexpr, VISITS: tl.constexpr, SLACK: tl.constexpr,
    IS_POISSON: tl.constexpr, IS_COUNT: tl.constexpr, IS_LONG: tl.constexpr,
):  # fmt: skip
    """Counts the edges of a row, or writes their keys from ``row_ptr[row]`` on: both draw the same.

    Keys are visited with probability ``bound``, by gaps of ⌊E · stride⌋ for exponential E, stride being
    −1 / ln(1 − bound), and kept with probability p / bound. ``lowest`` and ``highest`` times ``bound_rate`` enclose a
    key's rate, which is formed only for coins that fall between. What encloses is float32 and too far out by ``SLACK``,
    what decides is float64.
    """
    row = tl.program_id(0).to(tl.int64)
    graph, query = row // n_queries, row % n_queries
    first, head, example = graph * n_keys, graph % n_heads, graph // n_heads
    largest, per_unit, delta = tl.load(bound + row), tl.load(stride + row), tl.load(delta_in)
    unit, about_rate = largest.to(tl.float32) / 4294967296.0, tl.load(bound_rate + row).to(tl.float32)
    key = seed.to(tl.int64)
    place: tl.constexpr = tl.int64 if IS_LONG else tl.int32
    n_visits = tl.full((), 0, tl.int64)
    position = tl.where(largest > 0, -1, n_keys).to(place)
    furthest = tl.full((), 0, tl.float64) + n_keys
    n_edges = tl.full((), 0, tl.int64)
    start = tl.full((), 0, tl.int64) if IS_COUNT else tl.load(row_ptr + row)
    while position < n_keys:
        number = example + first_example
        w0, w1, w2, w3 = words_from(key, n_visits // 2, query, head + CANDIDATE, number, VISITS // 2)
        x0, x1, x2, x3 = words_from(key, n_visits // 4, query, head + KEEP, number, VISITS // 4)
        steps = exponential(tl.interleave(w0, w2), tl.interleave(w1, w3)) * per_unit
        words = tl.interleave(tl.interleave(x0, x2), tl.interleave(x1, x3))
        gaps = tl.minimum(steps, furthest).to(place)
        keys = position + tl.cumsum(gaps + 1, 0)
        is_visited = keys < n_keys
        if key_mask is not None:
            is_visited &= tl.load(key_mask + example * n_keys + keys, is_visited, other=0) != 0
        coins = words.to(tl.float32)  # (word + ½) / 2³² · largest lies between this and one more, in its unit
        low = tl.load(lowest + first + keys, is_visited, other=0.0) * about_rate + delta.to(tl.float32)
        high = tl.load(highest + first + keys, is_visited, other=0.0) * about_rate + delta.to(tl.float32)
        is_kept = is_visited & ((coins + 1) * (unit * (1 + SLACK)) < probability(low, IS_POISSON))
        is_unsure = is_visited & (coins * (unit * (1 - SLACK)) <= probability(high, IS_POISSON)) & ~is_kept
        if tl.max(is_unsure.to(tl.int32), 0) > 0:
            rates = tl.zeros((VISITS,), tl.float64) + delta
            for first_column in range(0, CLUSTERS, COLUMNS):  # some at a time: all of them would not fit into registers
                columns = first_column + tl.arange(0, COLUMNS)
                t = tl.load(query_rate + row * CLUSTERS + columns, columns < CLUSTERS, other=0.0).to(tl.float64)
                places = (first + keys)[:, None] * CLUSTERS + columns[None, :]
                k = tl.load(key_rate + places, is_unsure[:, None] & (columns < CLUSTERS)[None, :], other=0.0)
                rates += tl.sum(k.to(tl.float64) * t[None, :], 1)
            limit = (words.to(tl.float64) + 0.5) / 4294967296.0 * largest
            is_kept |= is_unsure & (limit < probability(rates, IS_POISSON))
        kept = is_kept.to(tl.int32)
        if not IS_COUNT:
            tl.store(out + start + n_edges + tl.cumsum(kept, 0) - 1, keys, is_kept)
        n_edges += tl.sum(kept, 0)
        position = tl.max(keys, 0)
        n_visits += VISITS
    if IS_COUNT:
        tl.store(out + row, n_edges)
