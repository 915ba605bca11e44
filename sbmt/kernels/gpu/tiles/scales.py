"""Scales that bring what tiles multiply into the range of 16-bit numbers. Each kernel passes over the tokens once.

Rate factors are multiplied by powers of two and split into sums of two 16-bit numbers, so that tensor cores multiply
them with a precision of 22 bits. The scales of the rates' gradients follow from an upper bound of these gradients.
float64 numbers are scaled by the same powers of two, which changes no digit, but not split.
"""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import load_rows, scale_of, store_rows
from sbmt.kernels.gpu.tiles.forward import are_real
from sbmt.kernels.gpu.toolchain import kernel

MOST = tl.constexpr(15)  # 2¹⁵: a 16-bit number holds 65504
KEY_SCALE = tl.constexpr(2.0**14)  # of the keys' rate factors, memberships of at most 1


@kernel
def power_below_most(x):
    """Finds the power of two that brings a number ≥ 0 into [2¹⁴, 2¹⁵), or below that if it is less than 2⁻⁹⁰."""
    if x.dtype == tl.float64:
        exponent = ((x.to(tl.int64, bitcast=True) >> 52) - 1022).to(tl.int32)
    else:
        exponent = (x.to(tl.int32, bitcast=True) >> 23) - 126
    exponent = MOST - tl.minimum(tl.maximum(exponent, -90), 90)
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True).to(x.dtype)


@kernel
def split_rates(rates, high, low, row_scale, n_rows, CLUSTERS: tl.constexpr, ROWS: tl.constexpr):
    """Splits rate factors into high and low parts, after multiplying each query's by a power of two.

    ``row_scale`` receives the factor that undoes the scaling of products; it is None for keys.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_there = rows < n_rows
    x = load_rows(rates, rows, is_there, CLUSTERS)
    if row_scale is not None:
        scale = power_below_most(tl.max(x, 1))
        x *= scale[:, None]
        tl.store(row_scale + rows, 1 / (scale * KEY_SCALE), is_there)
    else:
        x *= KEY_SCALE
    store_rows(high, rows, is_there, x, CLUSTERS)
    if low is not None:
        store_rows(low, rows, is_there, x - x.to(tl.float16).to(x.dtype), CLUSTERS)


@kernel
def lengths(vectors, rows, is_real, WIDTH: tl.constexpr, dtype: tl.constexpr):
    """Computes the lengths of some rows of a matrix, and 0 for rows that are not real."""
    found = load_rows(vectors, rows, is_real, WIDTH).to(dtype)
    return tl.sqrt(tl.sum(found * found, 1))


@kernel
def longest_of_keys(
    key, value, key_mask, longest, n_heads, n_keys, n_blocks,
    D: tl.constexpr, D_VALUE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Writes the lengths of each graph's longest key and longest value to ``longest`` ``(graphs, 2)``."""
    graph, keys = tl.program_id(0).to(tl.int64) // n_blocks, tl.program_id(0) % n_blocks * ROWS + tl.arange(0, ROWS)
    is_real = are_real(key_mask, graph // n_heads, keys, n_keys)
    dtype = longest.dtype.element_ty
    tl.atomic_max(longest + graph * 2, tl.max(lengths(key, graph * n_keys + keys, is_real, D, dtype), 0))
    tl.atomic_max(longest + graph * 2 + 1, tl.max(lengths(value, graph * n_keys + keys, is_real, D_VALUE, dtype), 0))


@kernel
def slopes_of_queries(
    query, query_mask, grad_out, out, largest_weight, row_scale, longest, grad_density,
    slope, delta, slope_scale, largest_slope, n_heads, n_queries, n_blocks,
    D: tl.constexpr, D_VALUE: tl.constexpr, ROWS: tl.constexpr, DROPOUT: tl.constexpr, IS_SCORE_RULE: tl.constexpr,
):  # fmt: skip
    """Computes what the backward pass needs of each query: dout in the type of values, ⟨dout, out⟩, and a scale.

    Gradients of rates are at most 2 ‖dout‖ ‖v‖ w (‖q‖ ‖k‖ / √d) / (1 − dropout) plus the density's, where w is the
    largest weight and the factor in parentheses belongs to the score rule alone. ``largest_slope`` receives the largest
    such bound of each graph in the unit of the keys' gradients.
    """
    graph, queries = tl.program_id(0).to(tl.int64) // n_blocks, tl.program_id(0) % n_blocks * ROWS + tl.arange(0, ROWS)
    rows, is_there = graph * n_queries + queries, queries < n_queries
    is_real = are_real(query_mask, graph // n_heads, queries, n_queries)
    dtype = delta.dtype.element_ty
    slopes = load_rows(grad_out, rows, is_real, D_VALUE).to(dtype)
    store_rows(slope, rows, is_there, slopes, D_VALUE)
    tl.store(delta + rows, tl.sum(slopes * load_rows(out, rows, is_real, D_VALUE).to(dtype), 1), is_there)
    bound = tl.sqrt(tl.sum(slopes * slopes, 1)) * tl.load(longest + graph * 2 + 1) * (2 / (1 - DROPOUT))
    bound *= tl.load(largest_weight + rows, is_there, other=0.0)
    if IS_SCORE_RULE:
        bound *= lengths(query, rows, is_real, D, dtype) * tl.load(longest + graph * 2) * scale_of(D)
    bound += tl.abs(tl.load(grad_density + graph))
    tl.store(slope_scale + rows, power_below_most(bound), is_there)
    in_units = bound * tl.load(row_scale + rows, is_there, other=0.0) * KEY_SCALE
    tl.atomic_max(largest_slope + graph, tl.max(in_units, 0))
