"""Gradients of attention over drawn tiles, by queries in one kernel and by keys in another.

No two programs add to the same place. Both kernels draw every tile again.
"""

import triton.language as tl

from sbmt.gpu.rows import block_of, load_rows, scale_of, store_rows
from sbmt.gpu.tiles import (
    LOW_STEP,
    block_and_graph,
    draw_tile,
    dropout_scale,
    load_rates,
    multiply,
    rates_of_tile,
    tokens_of_block,
)
from sbmt.gpu.toolchain import kernel


@kernel
def differentiate_tile(
    q, k, v, t, t_low, u, u_low, row_scales, slope, delta, most, log,
    queries, keys, is_real_query, is_real_key, to_density, seed, dropout_seed, number, head, first_key, exploration,
    SCALE: tl.constexpr, WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr,
    IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Of every pair of a tile: the weight of its value, and the gradients of q·k and of its rate.

    With weights w and scores s: ds = w · (dw − Σ w dw). The gate's gradient is s · ds (score rule) or ds (weight rule),
    and 1/N from the density; it goes to p, hence to the rate, where a pair was drawn and not certain.
    """
    ROWS: tl.constexpr = q.shape[0]
    KEYS: tl.constexpr = k.shape[0]
    dtype = most.dtype
    zeros = tl.zeros((ROWS, KEYS), dtype)
    rates = rates_of_tile(t, t_low, u, u_low, row_scales, zeros)
    is_edge, is_drawn = draw_tile(
        rates, queries, keys, is_real_query, is_real_key, seed.to(tl.int64), number, head, first_key, exploration,
        ROWS, KEYS, WINDOW, IS_POISSON,
    )  # fmt: skip
    scores = multiply(q, k.T, zeros) * SCALE
    weights = tl.exp(tl.where(is_edge, (scores - most[:, None]) - log[:, None], float("-inf")))
    to_weight = multiply(slope, v.T, zeros)
    kept = weights
    if DROPOUT > 0:
        scale = dropout_scale(dropout_seed.to(tl.int64), number, head, queries, first_key, ROWS, KEYS, DROPOUT, dtype)
        to_weight *= scale
        kept *= scale
    to_score = weights * (to_weight - delta[:, None])
    to_rate = to_density + (to_score * scores if IS_SCORE_RULE else to_score)
    if IS_POISSON:
        to_rate *= tl.exp(-rates)
    return kept, to_score * SCALE, tl.where(is_drawn, to_rate, 0.0)


@kernel
def add_product(total, slopes, rates, rates_low):
    """Adds slopes · rates to the total. Where rates are split, slopes are, too, each row by its largest number."""
    if rates.dtype == tl.float16:
        largest = tl.max(tl.abs(slopes), 1)
        scale = tl.where(largest > 0, largest, 1.0)[:, None]
        scaled = slopes / scale
        high = scaled.to(tl.float16)
        low = ((scaled - high.to(scaled.dtype)) / LOW_STEP).to(tl.float16)
        rest = multiply(high, rates_low, multiply(low, rates, tl.zeros_like(total)))
        return total + multiply(high, rates, rest * LOW_STEP) * scale
    else:
        return multiply(slopes, rates, total)


@kernel
def differentiate_queries(
    query, key, value, query_rate, query_rate_low, row_scale, key_rate, key_rate_low, query_mask, key_mask,
    grad_out, delta_in, most_in, log_in, grad_density, grad_query, grad_rate,
    seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """A block of queries: gradients of the queries and of their rate factors."""
    first_query, graph = block_and_graph(n_queries, ROWS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = most_in.dtype.element_ty
    queries, is_real_query = tokens_of_block(query_mask, example, first_query, n_queries, ROWS)
    row, of_keys = graph * n_queries, graph * n_keys
    q = load_rows(query + row * D, queries, is_real_query, D)
    t, t_low = load_rates(query_rate, query_rate_low, row, queries, is_real_query, CLUSTERS)
    row_scales = tl.load(row_scale + row + queries, is_real_query, other=0.0)
    slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
    delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)
    most = tl.load(most_in + row + queries, is_real_query, other=0.0)
    log = tl.load(log_in + row + queries, is_real_query, other=0.0)
    to_density = tl.load(grad_density + graph)
    to_query = tl.zeros((ROWS, block_of(D)), dtype)
    to_rates = tl.zeros((ROWS, block_of(CLUSTERS)), dtype)
    for first_key in range(0, n_keys, KEYS):
        keys, is_real_key = tokens_of_block(key_mask, example, first_key, n_keys, KEYS)
        k = load_rows(key + of_keys * D, keys, is_real_key, D)
        v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
        u, u_low = load_rates(key_rate, key_rate_low, of_keys, keys, is_real_key, CLUSTERS)
        _, to_product, to_rate = differentiate_tile(
            q, k, v, t, t_low, u, u_low, row_scales, slope, delta, most, log,
            queries, keys, is_real_query, is_real_key, to_density, seed, dropout_seed, number, head, first_key,
            exploration, scale_of(D), WINDOW, DROPOUT, IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_query = multiply(to_product.to(k.dtype), k, to_query)
        to_rates = add_product(to_rates, to_rate, u, u_low)
    is_there = queries < n_queries
    store_rows(grad_query + row * D, queries, is_there, to_query, D)
    store_rows(grad_rate + row * CLUSTERS, queries, is_there, to_rates, CLUSTERS)


@kernel
def differentiate_keys(
    query, key, value, query_rate, query_rate_low, row_scale, key_rate, key_rate_low, query_mask, key_mask,
    grad_out, delta_in, most_in, log_in, grad_density, grad_key, grad_value, grad_rate,
    seed, dropout_seed, first_example, n_heads, n_queries, n_keys, exploration,
    D: tl.constexpr, D_VALUE: tl.constexpr, CLUSTERS: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
    WINDOW: tl.constexpr, DROPOUT: tl.constexpr, IS_POISSON: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """A block of keys: gradients of the keys, the values and the keys' rate factors."""
    first_key, graph = block_and_graph(n_keys, KEYS)
    example, head, number = graph // n_heads, graph % n_heads, graph // n_heads + first_example
    dtype = most_in.dtype.element_ty
    keys, is_real_key = tokens_of_block(key_mask, example, first_key, n_keys, KEYS)
    row, of_keys = graph * n_queries, graph * n_keys
    k = load_rows(key + of_keys * D, keys, is_real_key, D)
    v = load_rows(value + of_keys * D_VALUE, keys, is_real_key, D_VALUE)
    u, u_low = load_rates(key_rate, key_rate_low, of_keys, keys, is_real_key, CLUSTERS)
    to_density = tl.load(grad_density + graph)
    to_key = tl.zeros((KEYS, block_of(D)), dtype)
    to_value = tl.zeros((KEYS, block_of(D_VALUE)), dtype)
    to_rates = tl.zeros((KEYS, block_of(CLUSTERS)), dtype)
    for first_query in range(0, n_queries, ROWS):
        queries, is_real_query = tokens_of_block(query_mask, example, first_query, n_queries, ROWS)
        q = load_rows(query + row * D, queries, is_real_query, D)
        t, t_low = load_rates(query_rate, query_rate_low, row, queries, is_real_query, CLUSTERS)
        row_scales = tl.load(row_scale + row + queries, is_real_query, other=0.0)
        slope = load_rows(grad_out + row * D_VALUE, queries, is_real_query, D_VALUE)
        delta = tl.load(delta_in + row + queries, is_real_query, other=0.0)
        most = tl.load(most_in + row + queries, is_real_query, other=0.0)
        log = tl.load(log_in + row + queries, is_real_query, other=0.0)
        kept, to_product, to_rate = differentiate_tile(
            q, k, v, t, t_low, u, u_low, row_scales, slope, delta, most, log,
            queries, keys, is_real_query, is_real_key, to_density, seed, dropout_seed, number, head, first_key,
            exploration, scale_of(D), WINDOW, DROPOUT, IS_POISSON, IS_SCORE_RULE,
        )  # fmt: skip
        to_key = multiply(to_product.to(q.dtype).T, q, to_key)
        to_value = multiply(kept.to(slope.dtype).T, slope, to_value)
        scaled = (to_rate * row_scales[:, None]).T
        to_rates = add_product(to_rates, scaled, t, t_low)
    is_there = keys < n_keys
    store_rows(grad_key + of_keys * D, keys, is_there, to_key, D)
    store_rows(grad_value + of_keys * D_VALUE, keys, is_there, to_value, D_VALUE)
    store_rows(grad_rate + of_keys * CLUSTERS, keys, is_there, to_rates, CLUSTERS)
