"""Gradients of attention over drawn tiles: one kernel for those of queries, another for those of keys.

Each program writes only its own block, so no two add to the same place. Both kernels draw every tile again. In the
second one, keys are a tile's rows and queries its columns, the layout in which a matrix unit sums over queries.
"""

import triton.language as tl

from sbmt.kernels.gpu.philox import cell_words
from sbmt.kernels.gpu.rows.blocks import block_of, load_rows, narrow, scale_of, store_rows
from sbmt.kernels.gpu.tiles.forward import (
    LOG2_E,
    are_real,
    block_and_graph,
    draw_tile,
    dropout_scale,
    multiply,
    rates_of_tile,
)
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def weigh_tile(is_edge, products, log_total, SCALE: tl.constexpr):
    """Computes the attention weight of every pair of a tile."""
    return tl.exp2(tl.where(is_edge, products * (SCALE * LOG2_E) - log_total, float("-inf")))


@kernel
def differentiate_tile(
    is_drawn, weights, products, to_weight, rates, delta, to_density,
    SCALE: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of every pair's score and rate.

    With weights w and scores s: ds = w · (dw − Σ w dw). The gate's gradient is s · ds (score rule) or ds (weight rule),
    plus the density's. It passes to the pair's probability, and hence its rate, if the pair was drawn and not certain.
    """
    to_score = weights * (to_weight - delta)
    to_rate = (products * SCALE * to_score if IS_SCORE_RULE else to_score) + to_density
    if IS_POISSON:
        to_rate *= tl.exp(-rates)
    return to_score, tl.where(is_drawn, to_rate, 0.0)


@kernel
def differentiate_queries(
    query, key, value, query_rate, key_rate, query_mask, key_mask, grad_out, delta_in, log_total_in, grad_density,
    grad_query, grad_rate,
    seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of a block of queries and of their rate factors."""
    first_query, graph = block_and_graph(n_queries, ROWS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = log_total_in.dtype.element_ty
    queries = first_query + tl.arange(0, ROWS)
    is_real_query = are_real(query_mask, example, queries, n_queries)
    row, of_keys = graph * n_queries, graph * n_keys
    query_rates, key_rates = query_rate + row * CLUSTERS, key_rate + of_keys * CLUSTERS
    q = load_rows(query + row * D, queries, is_real_query, D)
    slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
    delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)[:, None]
    log_total = tl.load(log_total_in + row + queries, is_real_query, other=0.0)[:, None]
    to_density, known_queries = tl.load(grad_density + graph), tl.minimum(queries, n_queries - 1)
    to_query = tl.zeros((ROWS, block_of(D)), dtype)
    to_rates = tl.zeros((ROWS, block_of(CLUSTERS)), dtype)
    for first_key in range(0, n_keys, KEYS):
        keys = first_key + tl.arange(0, KEYS)
        is_real_key = are_real(key_mask, example, keys, n_keys)
        k = load_rows(key + of_keys * D, keys, is_real_key, D)
        v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
        known_keys = tl.minimum(keys, n_keys - 1)
        zeros = tl.zeros((ROWS, KEYS), dtype)
        rates = rates_of_tile(query_rates, known_queries, key_rates, known_keys, zeros, CLUSTERS)
        words = cell_words(seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
        is_edge, is_drawn = draw_tile(
            words, rates, queries[:, None], keys[None, :], is_real_key[None, :], exploration, WINDOW, IS_POISSON
        )
        products = multiply(q, k.T, zeros)
        weights = weigh_tile(is_edge, products, log_total, scale_of(D))
        to_weight = multiply(slope, v.T, zeros)
        if DROPOUT > 0:
            words = cell_words(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
            to_weight *= dropout_scale(words, DROPOUT, dtype)
        to_score, to_rate = differentiate_tile(
            is_drawn, weights, products, to_weight, rates, delta, to_density,
            scale_of(D), IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_query = multiply(narrow(to_score, k.dtype), k, to_query)
        to_rates = multiply(to_rate, load_rows(key_rates, known_keys, None, CLUSTERS), to_rates)
    is_there = queries < n_queries
    store_rows(grad_query + row * D, queries, is_there, to_query * scale_of(D), D)
    to_rates = tl.where(is_real_query[:, None], to_rates, 0.0)
    store_rows(grad_rate + row * CLUSTERS, queries, is_there, to_rates, CLUSTERS)


@kernel
def differentiate_keys(
    query, key, value, query_rate, key_rate, query_mask, key_mask, grad_out, delta_in, log_total_in, grad_density,
    grad_key, grad_value, grad_rate,
    seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of a block of keys, of its values and of the keys' rate factors."""
    first_key, graph = block_and_graph(n_keys, KEYS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = log_total_in.dtype.element_ty
    keys = first_key + tl.arange(0, KEYS)
    is_real_key = are_real(key_mask, example, keys, n_keys)
    row, of_keys = graph * n_queries, graph * n_keys
    query_rates, key_rates = query_rate + row * CLUSTERS, key_rate + of_keys * CLUSTERS
    k = load_rows(key + of_keys * D, keys, is_real_key, D)
    v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
    to_density, known_keys = tl.load(grad_density + graph), tl.minimum(keys, n_keys - 1)
    to_key = tl.zeros((KEYS, block_of(D)), dtype)
    to_value = tl.zeros((KEYS, block_of(D_VALUE)), dtype)
    to_rates = tl.zeros((KEYS, block_of(CLUSTERS)), dtype)
    for first_query in range(0, n_queries, ROWS):
        queries = first_query + tl.arange(0, ROWS)
        is_real_query = are_real(query_mask, example, queries, n_queries)
        q = load_rows(query + row * D, queries, is_real_query, D)
        known_queries = tl.minimum(queries, n_queries - 1)
        slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
        delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)[None, :]
        log_total = tl.load(log_total_in + row + queries, is_real_query, other=0.0)[None, :]
        zeros = tl.zeros((KEYS, ROWS), dtype)
        is_real = is_real_key[:, None] & is_real_query[None, :]
        rates = rates_of_tile(key_rates, known_keys, query_rates, known_queries, zeros, CLUSTERS)
        words = cell_words(seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS).T
        is_edge, is_drawn = draw_tile(
            words, rates, queries[None, :], keys[:, None], is_real, exploration, WINDOW, IS_POISSON
        )
        products = multiply(k, q.T, zeros)
        weights = weigh_tile(is_edge, products, log_total, scale_of(D))
        if DROPOUT > 0:
            words = cell_words(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS).T
            scales = dropout_scale(words, DROPOUT, dtype)
            to_value = multiply(narrow(weights * scales, slope.dtype), slope, to_value)
            to_weight = multiply(v, slope.T, zeros) * scales
        else:
            to_value = multiply(narrow(weights, slope.dtype), slope, to_value)
            to_weight = multiply(v, slope.T, zeros)
        to_score, to_rate = differentiate_tile(
            is_drawn, weights, products, to_weight, rates, delta, to_density,
            scale_of(D), IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_key = multiply(narrow(to_score, q.dtype), q, to_key)
        to_rates = multiply(to_rate, load_rows(query_rates, known_queries, None, CLUSTERS), to_rates)
    is_there = keys < n_keys
    store_rows(grad_key + of_keys * D, keys, is_there, to_key * scale_of(D), D)
    store_rows(grad_value + of_keys * D_VALUE, keys, is_there, to_value, D_VALUE)
    store_rows(grad_rate + of_keys * CLUSTERS, keys, is_there, to_rates, CLUSTERS)
