"""Attention over tiles of pairs whose mask is drawn in registers and never stored.

A tile has ``ROWS`` queries and ``KEYS`` keys. One product of rate factors gives its rates, and its coins are the words
that :mod:`sbmt.samplers.bernoulli` uses for the same cells, so the edges are those of that sampler. Tiles are drawn
again whenever they are needed again. A mask of tokens is None if all tokens are real.
"""

import triton.language as tl

from sbmt.kernels.gpu.philox import cell_words
from sbmt.kernels.gpu.rows.blocks import block_of, load_rows, narrow, scale_of, store_rows
from sbmt.kernels.gpu.toolchain import IS_INTERPRETED, constant, kernel

WORDS = tl.constexpr(2.0**32)
LOG2_E = tl.constexpr(1.4426950408889634)  # scores are exponents of 2


@constant
def slice_of(n_clusters):
    """How many clusters are multiplied at a time; all of them would fill the registers."""
    return min(32, block_of(n_clusters))


@constant
def words_below(probability):
    """The number of words, out of 2³², that stand for uniforms below a probability."""
    return int(probability * 2**32 + 0.5)


@kernel
def multiply(a, b, total):
    """Adds a · b to the total; three products on tensor cores preserve the precision of float32."""
    if IS_INTERPRETED:  # the interpreter would multiply the bits of bfloat16 numbers as integers
        a, b = a.to(total.dtype), b.to(total.dtype)
    PRECISION: tl.constexpr = "tf32x3" if a.dtype == tl.float32 else "ieee"
    return tl.dot(a, b, total, input_precision=PRECISION, out_dtype=total.dtype)


@kernel
def block_and_graph(n_tokens, N: tl.constexpr):
    """Returns the first token of this program's block, and its graph; the blocks of a graph are consecutive."""
    program = tl.program_id(0).to(tl.int64)
    n_blocks = tl.cdiv(n_tokens, N)
    return (program % n_blocks * N).to(tl.int32), program // n_blocks


@kernel
def are_real(mask, example, places, n_tokens):
    """Tells which tokens of a sequence exist and are real."""
    is_real = places < n_tokens
    if mask is not None:
        is_real &= tl.load(mask + example * n_tokens + places, is_real, other=0) != 0
    return is_real


@kernel
def rates_of_tile(row_rates, rows, column_rates, columns, total, CLUSTERS: tl.constexpr):
    """Adds to ``total`` the products of rate factors, those of a sequence's ``rows`` and of another's ``columns``."""
    WIDTH: tl.constexpr = slice_of(CLUSTERS)
    for start in range(0, CLUSTERS, WIDTH):
        clusters = start + tl.arange(0, WIDTH)
        is_there = (clusters < CLUSTERS)[None, :]
        a = tl.load(row_rates + rows[:, None] * CLUSTERS + clusters[None, :], is_there, other=0.0)
        b = tl.load(column_rates + columns[:, None] * CLUSTERS + clusters[None, :], is_there, other=0.0)
        total = multiply(a, b.T, total)
    return total


@kernel
def poisson_link(r):
    """Computes 1 − e^(−r), by its series where the difference would lose digits."""
    series = r * (1 - r / 2 * (1 - r / 3 * (1 - r / 4 * (1 - r / 5 * (1 - r / 6 * (1 - r / 7))))))
    bound: tl.constexpr = 0.01 if r.dtype == tl.float64 else 0.25
    return tl.where(r < bound, series, 1 - tl.exp(-r))


@kernel
def draw_tile(words, rates, queries, keys, is_real, exploration, WINDOW: tl.constexpr, IS_POISSON: tl.constexpr):
    """Decides which pairs of a tile are attended, and which of those were drawn at random rather than certain.

    Numbers per query or key broadcast over the tile, whose rows may be either; ``is_real`` may leave out that queries
    exist, and then the answer for those that do not is arbitrary. A pair is drawn if (word + ½) / 2³² < p. The test
    compares integers, since a float32 would round the word.
    """
    probability = poisson_link(rates + exploration) if IS_POISSON else rates + exploration
    expected = tl.where(is_real, probability, 0.0) * WORDS
    nearest = (tl.maximum(tl.minimum(expected, 4294967040.0), 0.0) + 0.5).to(tl.uint32)  # the last float32 below 2³²
    is_drawn = (words < nearest) | (expected >= WORDS)
    if WINDOW >= 0:
        away = queries - keys
        is_certain = is_real & (away <= WINDOW) & (away >= -WINDOW)
        return is_drawn | is_certain, is_drawn & ~is_certain
    else:
        return is_drawn, is_drawn


@kernel
def dropout_scale(words, DROPOUT: tl.constexpr, dtype: tl.constexpr):
    """Computes the factor of each weight: 0 if the pair is dropped, else 1 / (1 − dropout)."""
    return (words.to(tl.int64) >= words_below(DROPOUT)).to(dtype) / (1 - DROPOUT)


@kernel
def attend_tiles(
    query, key, value, query_rate, key_rate, query_mask, key_mask, out, degrees, log_total,
    seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr,
):  # fmt: skip
    """Computes output, degrees and base-2 logarithms of denominators for a block of queries."""
    SCORE: tl.constexpr = scale_of(D) * LOG2_E
    first_query, graph = block_and_graph(n_queries, ROWS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = log_total.dtype.element_ty
    queries = first_query + tl.arange(0, ROWS)
    is_real_query = are_real(query_mask, example, queries, n_queries)
    row, of_keys = graph * n_queries, graph * n_keys  # added to pointers, so that token offsets fit 32 bits
    query_rates, key_rates = query_rate + row * CLUSTERS, key_rate + of_keys * CLUSTERS
    known_queries = tl.minimum(queries, n_queries - 1)  # beyond the end the last rates are read again, without a mask
    q = load_rows(query + row * D, queries, is_real_query, D)
    most = tl.full((ROWS,), float("-inf"), dtype)  # the largest score so far, to base 2
    total = tl.zeros((ROWS,), dtype)
    mean = tl.zeros((ROWS, block_of(D_VALUE)), dtype)
    degree = tl.zeros((ROWS,), tl.int32)
    for first_key in range(0, n_keys, KEYS):
        keys = first_key + tl.arange(0, KEYS)
        is_real_key = are_real(key_mask, example, keys, n_keys)
        zeros = tl.zeros((ROWS, KEYS), dtype)
        k = load_rows(key + of_keys * D, keys, is_real_key, D)
        products = multiply(q, k.T, zeros)
        rates = rates_of_tile(query_rates, known_queries, key_rates, tl.minimum(keys, n_keys - 1), zeros, CLUSTERS)
        words = cell_words(seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
        is_edge, _ = draw_tile(
            words, rates, queries[:, None], keys[None, :], is_real_key[None, :], exploration, WINDOW, IS_POISSON
        )
        degree += tl.sum(is_edge.to(tl.int32), 1)
        products = tl.where(is_edge, products, float("-inf"))
        higher = tl.maximum(most, tl.max(products, 1) * SCORE)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(products * SCORE - finite[:, None])
        shrink = tl.exp2(most - finite)
        total = total * shrink + tl.sum(weights, 1)
        if DROPOUT > 0:
            words = cell_words(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
            weights *= dropout_scale(words, DROPOUT, dtype)
        v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
        mean = multiply(narrow(weights, v.dtype), v, mean * shrink[:, None])
        most = higher
    is_there = queries < n_queries
    is_empty = (degree == 0) | ~is_real_query
    total = tl.where(is_empty, 1.0, total)
    mean = tl.where(is_empty[:, None], 0.0, mean / total[:, None])
    store_rows(out + row * D_VALUE, queries, is_there, mean, D_VALUE)
    tl.store(degrees + row + queries, tl.where(is_empty, 0, degree), is_there)
    tl.store(log_total + row + queries, tl.where(is_empty, 0.0, most + tl.log2(total)), is_there)
