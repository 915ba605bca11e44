"""Gradients of attention over drawn tiles: one kernel for those of queries, another for those of keys.

Each program writes only its own block, so no two add to the same place. Both kernels draw every tile again. In the
second one, keys are a tile's rows and queries its columns, the layout in which a matrix unit sums over queries. If
rates are split, their gradients are scaled into the range of 16-bit numbers and multiplied by 16-bit factors. For
bfloat16 queries the rounding is smaller than what the queries themselves have lost; for others, two parts are kept.
"""

import triton.language as tl

from sbmt.kernels.gpu.instructions import exp2, narrow, settled
from sbmt.kernels.gpu.philox import cell_words, cell_words_by_key, keys_of_tile
from sbmt.kernels.gpu.rows.blocks import block_of, load_rows, scale_of, store_rows
from sbmt.kernels.gpu.tiles.forward import (
    LOG2_E,
    are_real,
    block_and_graph,
    draw_tile,
    dropout_scale,
    load_rates,
    multiply,
    products_of_rates,
)
from sbmt.kernels.gpu.tiles.scales import KEY_SCALE, power_below_most
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def weigh_tile(is_edge, products, log_total, SCALE: tl.constexpr):
    """Computes the attention weight of every pair of a tile."""
    return exp2(tl.where(is_edge, products * (SCALE * LOG2_E) - log_total, float("-inf")))


@kernel
def differentiate_tile(
    is_drawn, weights, products, to_weight, rates, row_scales, delta, to_density, unit,
    SCALE: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes the gradients of every pair's score and, in multiples of ``unit``, of its rate.

    With weights w and scores s: ds = w · (dw − Σ w dw). The gate's gradient is s · ds (score rule) or ds (weight rule),
    plus the density's. It passes to the pair's probability, and hence its rate, if the pair was drawn and not certain.
    """
    to_score = weights * (to_weight - delta)
    to_gate = products * (SCALE * unit) * to_score if IS_SCORE_RULE else to_score * unit
    to_rate = to_gate + to_density * unit
    if IS_POISSON:
        to_rate *= tl.exp(-rates * row_scales)
    return to_score, tl.where(is_drawn, to_rate, 0.0)


@kernel
def add_product(total, slopes, rates, rates_low, IS_PRECISE: tl.constexpr):
    """Adds slopes · rates to the total, in two parts if that is needed for precision."""
    if rates.dtype == tl.float16:
        high = slopes.to(tl.float16)
        if IS_PRECISE:
            low = (slopes - high.to(slopes.dtype)).to(tl.float16)
            total = multiply(high, rates_low, multiply(low, rates, total))
        return multiply(high, rates, total)
    else:
        return multiply(slopes, rates, total)


@kernel
def differentiate_queries(
    query, key, value, query_rate, query_rate_low, row_scale, key_rate, key_rate_low, query_mask, key_mask,
    grad_out, delta_in, log_total_in, slope_scale, grad_density, grad_query, grad_rate,
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
    q = load_rows(query + row * D, queries, is_real_query, D)
    t, t_low = load_rates(query_rate, query_rate_low, row, queries, n_queries, CLUSTERS)
    slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
    row_scales = tl.load(row_scale + row + queries, is_real_query, other=0.0)[:, None]
    delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)[:, None]
    log_total = tl.load(log_total_in + row + queries, is_real_query, other=0.0)[:, None]
    slope_scales = tl.load(slope_scale + row + queries, is_real_query, other=1.0)[:, None]
    to_density = tl.load(grad_density + graph)
    to_query = tl.zeros((ROWS, block_of(D)), dtype)
    to_rates = tl.zeros((ROWS, block_of(CLUSTERS)), dtype)
    for first_key in range(0, n_keys, KEYS):
        keys = keys_of_tile(first_key, KEYS)
        is_real_key = are_real(key_mask, example, keys, n_keys)
        k = load_rows(key + of_keys * D, keys, is_real_key, D)
        v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
        u, u_low = load_rates(key_rate, key_rate_low, of_keys, keys, n_keys, CLUSTERS)
        zeros = tl.zeros((ROWS, KEYS), dtype)
        rates = products_of_rates(t, t_low, u, u_low, zeros)
        words = cell_words(seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
        is_edge, is_drawn = draw_tile(
            words, rates, row_scales, queries[:, None], keys[None, :], is_real_key[None, :], exploration,
            WINDOW, IS_POISSON,
        )  # fmt: skip
        products = multiply(q, k.T, zeros)
        weights = weigh_tile(is_edge, products, log_total, scale_of(D))
        to_weight = multiply(slope, v.T, zeros)
        if DROPOUT > 0:
            words = cell_words(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
            to_weight *= dropout_scale(words, DROPOUT, dtype)
        to_score, to_rate = differentiate_tile(
            is_drawn, weights, products, to_weight, rates, row_scales, delta, to_density, 1.0,
            scale_of(D), IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_query = multiply(narrow(to_score, k.dtype), k, to_query)
        to_rates = settled(add_product(to_rates, to_rate * slope_scales, u, u_low, k.dtype != tl.bfloat16))
    is_there = queries < n_queries
    store_rows(grad_query + row * D, queries, is_there, to_query * scale_of(D), D)
    to_rates = tl.where(is_real_query[:, None], to_rates / (slope_scales * KEY_SCALE), 0.0)
    store_rows(grad_rate + row * CLUSTERS, queries, is_there, to_rates, CLUSTERS)


@kernel
def differentiate_keys(
    query, key, value, query_rate, query_rate_low, row_scale, key_rate, key_rate_low, query_mask, key_mask,
    grad_out, delta_in, log_total_in, largest_slope, grad_density, grad_key, grad_value, grad_rate,
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
    k = load_rows(key + of_keys * D, keys, is_real_key, D)
    v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
    u, u_low = load_rates(key_rate, key_rate_low, of_keys, keys, n_keys, CLUSTERS)
    to_density, unit = tl.load(grad_density + graph), power_below_most(tl.load(largest_slope + graph))
    to_key = tl.zeros((KEYS, block_of(D)), dtype)
    to_value = tl.zeros((KEYS, block_of(D_VALUE)), dtype)
    to_rates = tl.zeros((KEYS, block_of(CLUSTERS)), dtype)
    for first_query in range(0, n_queries, ROWS):
        queries = first_query + tl.arange(0, ROWS)
        is_real_query = are_real(query_mask, example, queries, n_queries)
        q = load_rows(query + row * D, queries, is_real_query, D)
        t, t_low = load_rates(query_rate, query_rate_low, row, queries, n_queries, CLUSTERS)
        slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
        row_scales = tl.load(row_scale + row + queries, is_real_query, other=0.0)[None, :]
        delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)[None, :]
        log_total = tl.load(log_total_in + row + queries, is_real_query, other=0.0)[None, :]
        zeros = tl.zeros((KEYS, ROWS), dtype)
        rates = products_of_rates(u, u_low, t, t_low, zeros)
        words = cell_words_by_key(seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
        is_edge, is_drawn = draw_tile(
            words, rates, row_scales, queries[None, :], keys[:, None], is_real_key[:, None], exploration,
            WINDOW, IS_POISSON,
        )  # fmt: skip
        products = multiply(k, q.T, zeros)
        weights = weigh_tile(is_edge, products, log_total, scale_of(D))
        if DROPOUT > 0:
            words = cell_words_by_key(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS)
            scales = dropout_scale(words, DROPOUT, dtype)
            to_value = multiply(narrow(weights * scales, slope.dtype), slope, to_value)
            to_weight = multiply(v, slope.T, zeros) * scales
        else:
            to_value = multiply(narrow(weights, slope.dtype), slope, to_value)
            to_weight = multiply(v, slope.T, zeros)
        to_score, to_rate = differentiate_tile(
            is_drawn, weights, products, to_weight, rates, row_scales, delta, to_density, unit * KEY_SCALE,
            scale_of(D), IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_key = multiply(narrow(to_score, q.dtype), q, to_key)
        to_rates = settled(add_product(to_rates, to_rate * row_scales, t, t_low, q.dtype != tl.bfloat16))
    is_there = keys < n_keys
    store_rows(grad_key + of_keys * D, keys, is_there, to_key * scale_of(D), D)
    store_rows(grad_value + of_keys * D_VALUE, keys, is_there, to_value, D_VALUE)
    store_rows(grad_rate + of_keys * CLUSTERS, keys, is_there, to_rates / unit, CLUSTERS)
