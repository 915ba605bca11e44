"""Attention over tiles of pairs whose mask is drawn in registers and never stored.

A tile has ``ROWS`` queries and ``KEYS`` keys. Its rates are one product of rate factors, its coins are the words that
:mod:`sbmt.samplers.bernoulli` gives the same cells, so the edges are that sampler's. Whoever needs a tile again draws
it again. Masks of tokens are None where all are real.
"""

import triton.language as tl

from sbmt.gpu.philox import cell_words
from sbmt.gpu.rows import block_of, load_rows, scale_of, store_rows
from sbmt.gpu.toolchain import IS_INTERPRETED, constant, kernel

LOW_STEP = tl.constexpr(2.0**-11)  # a 16-bit number has 11 bits before the low part begins


@constant
def words_below(probability):
    """How many of the 2³² words stand for uniforms below a probability."""
    return int(probability * 2**32 + 0.5)


@kernel
def multiply(a, b, total):
    """Adds a · b to the total: float32 by three products of tensor cores, which keep its precision."""
    if IS_INTERPRETED:  # which multiplies bfloat16 numbers by their bits
        a, b = a.to(total.dtype), b.to(total.dtype)
    PRECISION: tl.constexpr = "tf32x3" if a.dtype == tl.float32 else "ieee"
    return tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)


@kernel
def block_and_graph(n_tokens, N: tl.constexpr):
    """This program's block of tokens, and its graph: the blocks of a graph come one after the other."""
    program = tl.program_id(0).to(tl.int64)
    n_blocks = tl.cdiv(n_tokens, N)
    return (program % n_blocks * N).to(tl.int32), program // n_blocks


@kernel
def tokens_of_block(mask, example, first, n_tokens, N: tl.constexpr):
    """Places of a block of tokens in their sequence, and which of them exist and are real."""
    places = first + tl.arange(0, N)
    is_real = places < n_tokens
    if mask is not None:
        is_real &= tl.load(mask + example * n_tokens + places, is_real, other=0) != 0
    return places, is_real


@kernel
def load_rates(high, low, first, tokens, is_real, CLUSTERS: tl.constexpr):
    """Rate factors of some tokens of the sequence that begins at row ``first``, in two parts if they are split.

    See :func:`sbmt.gpu.tile_launch.split`.
    """
    coarse = load_rows(high + first * CLUSTERS, tokens, is_real, CLUSTERS)
    if low is not None:
        return coarse, load_rows(low + first * CLUSTERS, tokens, is_real, CLUSTERS)
    else:
        return coarse, coarse


@kernel
def rates_of_tile(t, t_low, u, u_low, row_scale, zeros):
    """The rates T K̂ᵀ. Of split factors three products are taken, with an error near 2⁻²¹ of the largest r."""
    if t.dtype == tl.float16:
        rest = multiply(t, u_low.T, multiply(t_low, u.T, zeros))
        return multiply(t, u.T, rest * LOW_STEP) * row_scale[:, None]
    else:
        return multiply(t, u.T, zeros)


@kernel
def poisson_link(r):
    """1 − e^(−r), by its series where the difference would lose digits."""
    series = r * (1 - r / 2 * (1 - r / 3 * (1 - r / 4 * (1 - r / 5 * (1 - r / 6 * (1 - r / 7))))))
    return tl.where(r < 0.25, series, 1 - tl.exp(-r))


@kernel
def draw_tile(
    rates, queries, keys, is_real_query, is_real_key, seed, example, head, first_key, exploration,
    ROWS: tl.constexpr, KEYS: tl.constexpr, WINDOW: tl.constexpr, IS_POISSON: tl.constexpr,
):  # fmt: skip
    """Which pairs of a tile are attended, and which of those were left to chance."""
    is_real = is_real_query[:, None] & is_real_key[None, :]
    probability = rates + exploration
    if IS_POISSON:
        probability = poisson_link(probability)
    words = cell_words(seed, example, head, queries, first_key, ROWS, KEYS)
    # (word + ½) / 2³² < p in whole numbers, since a float32 would round the word; below 2³² lies 4294967040.
    limit = (tl.minimum(probability * 4294967296.0, 4294967040.0) + 0.5).to(tl.uint32)
    is_drawn = is_real & ((words < limit) | (probability >= 1))
    if WINDOW >= 0:
        away = queries[:, None] - keys[None, :]
        is_certain = is_real & (away <= WINDOW) & (away >= -WINDOW)
        return is_drawn | is_certain, is_drawn & ~is_certain
    else:
        return is_drawn, is_drawn


@kernel
def dropout_scale(
    seed, example, head, queries, first_key,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DROPOUT: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """What the weight of a pair is multiplied by: 0 if it is dropped, else 1 / (1 − dropout)."""
    words = cell_words(seed, example, head, queries, first_key, ROWS, KEYS)
    return (words.to(tl.int64) >= words_below(DROPOUT)).to(dtype) / (1 - DROPOUT)


@kernel
def attend_tiles(
    query, key, value, query_rate, query_rate_low, row_scale, key_rate, key_rate_low, query_mask, key_mask,
    out, degrees, most_out, log_out, seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr,
):  # fmt: skip
    """A block of queries: their output, degrees, largest scores, and logarithms of the sums of exp(score − largest)."""
    first_query, graph = block_and_graph(n_queries, ROWS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = most_out.dtype.element_ty
    queries, is_real_query = tokens_of_block(query_mask, example, first_query, n_queries, ROWS)
    row, of_keys = graph * n_queries, graph * n_keys  # added to pointers, so that places of tokens fit 32 bits
    q = load_rows(query + row * D, queries, is_real_query, D)
    t, t_low = load_rates(query_rate, query_rate_low, row, queries, is_real_query, CLUSTERS)
    row_scales = tl.load(row_scale + row + queries, is_real_query, other=0.0)
    most = tl.full((ROWS,), float("-inf"), dtype)
    total = tl.zeros((ROWS,), dtype)
    mean = tl.zeros((ROWS, block_of(D_VALUE)), dtype)
    degree = tl.zeros((ROWS,), tl.int32)
    for first_key in range(0, n_keys, KEYS):
        keys, is_real_key = tokens_of_block(key_mask, example, first_key, n_keys, KEYS)
        u, u_low = load_rates(key_rate, key_rate_low, of_keys, keys, is_real_key, CLUSTERS)
        zeros = tl.zeros((ROWS, KEYS), dtype)
        rates = rates_of_tile(t, t_low, u, u_low, row_scales, zeros)
        is_edge, _ = draw_tile(
            rates, queries, keys, is_real_query, is_real_key, seed.to(tl.int64), number, head, first_key, exploration,
            ROWS, KEYS, WINDOW, IS_POISSON,
        )  # fmt: skip
        degree += tl.sum(is_edge.to(tl.int32), 1)
        scores = multiply(q, load_rows(key + of_keys * D, keys, is_real_key, D).T, zeros) * scale_of(D)
        scores = tl.where(is_edge, scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - finite[:, None])
        shrink = tl.exp(most - finite)
        total = total * shrink + tl.sum(weights, 1)
        if DROPOUT > 0:
            weights *= dropout_scale(
                dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS, DROPOUT, dtype
            )
        v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
        mean = multiply(weights.to(v.dtype), v, mean * shrink[:, None])
        most = higher
    is_empty = degree == 0
    total = tl.where(is_empty, 1.0, total)
    is_there = queries < n_queries
    store_rows(out + row * D_VALUE, queries, is_there, mean / total[:, None], D_VALUE)
    tl.store(degrees + row + queries, degree, is_there)
    tl.store(most_out + row + queries, tl.where(is_empty, 0.0, most), is_there)
    tl.store(log_out + row + queries, tl.log(total), is_there)
