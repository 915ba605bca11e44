"""Rates to parts, the rates of edges, sums over groups of the products of two of the former, and gradients of both.

Everything is flattened: row r of ``rate``, a query's rates to all parts, belongs to graph r // n_queries, whose keys
are rows graph · n_keys + j of ``part`` and ``weight``.
"""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import edges_of, power_of_two
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def to_parts(
    part, weight, blocks, out, n_rows, n_queries, n_heads,
    PARTITIONS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Computes queries' rates to all parts: the rows of the head's blocks that are those of its own parts, weighted."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row, columns = rows < n_rows, tl.arange(0, power_of_two(SIZE))
    is_there = is_row[:, None] & (columns < SIZE)[None, :]
    of_head = rows // n_queries % n_heads * (PARTITIONS * SIZE)
    for partition in tl.static_range(PARTITIONS):
        total = tl.zeros((ROWS, power_of_two(SIZE)), out.dtype.element_ty)
        for number in tl.static_range(ACTIVE):
            places = (rows * PARTITIONS + partition) * ACTIVE + number
            parts = of_head + tl.load(part + places, is_row, other=0)
            weights = tl.load(weight + places, is_row, other=0.0)
            total += weights[:, None] * tl.load(blocks + parts[:, None] * SIZE + columns[None, :], is_there, other=0.0)
        tl.store(out + (rows * PARTITIONS + partition)[:, None] * SIZE + columns[None, :], total, is_there)


@kernel
def to_weights(
    grad, part, blocks, out, n_rows, n_queries, n_heads,
    PARTITIONS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of how much queries are in their parts from that of their rates."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    is_row, columns = rows < n_rows, tl.arange(0, power_of_two(SIZE))
    is_there = is_row[:, None] & (columns < SIZE)[None, :]
    of_head = rows // n_queries % n_heads * (PARTITIONS * SIZE)
    for partition in tl.static_range(PARTITIONS):
        of_rates = (rows * PARTITIONS + partition)[:, None] * SIZE + columns[None, :]
        g = tl.load(grad + of_rates, is_there, other=0.0)
        for number in tl.static_range(ACTIVE):
            places = (rows * PARTITIONS + partition) * ACTIVE + number
            parts = of_head + tl.load(part + places, is_row, other=0)
            block = tl.load(blocks + parts[:, None] * SIZE + columns[None, :], is_there, other=0.0)
            tl.store(out + places, tl.sum(g * block, 1), is_row)


@kernel
def parts_of(part, weight, tokens, partition, PARTITIONS: tl.constexpr, ACTIVE: tl.constexpr):
    """Loads tokens' parts in a partition and how much they are in each, zeros beyond ``ACTIVE``."""
    active = tl.arange(0, power_of_two(ACTIVE))
    places = (tokens * PARTITIONS + partition)[:, None] * ACTIVE + active[None, :]
    is_active = (active < ACTIVE)[None, :]
    return tl.load(part + places, is_active, other=0).to(tl.int32), tl.load(weight + places, is_active, other=0.0)


@kernel
def rates_along(
    rate, part, weight, row_ptr, keys, out, n_queries, n_keys,
    PARTITIONS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Computes the rate of every edge of a row."""
    row = tl.program_id(0).to(tl.int64)
    first, n_edges = edges_of(row_ptr, row)
    of_row, of_keys = rate + row * (PARTITIONS * SIZE), row // n_queries * n_keys
    for start in range(0, n_edges, EDGES):
        edges = first + tl.minimum(start + tl.arange(0, EDGES), n_edges - 1)  # beyond the end, the last is repeated
        tokens = of_keys + tl.load(keys + edges)
        total = tl.zeros((EDGES,), out.dtype.element_ty)
        for group in tl.static_range(PARTITIONS // 2):
            parts, weights = parts_of(part, weight, tokens, 2 * group, PARTITIONS, ACTIVE)
            x = tl.sum(tl.load(of_row + parts) * weights, 1)
            parts, weights = parts_of(part, weight, tokens, 2 * group + 1, PARTITIONS, ACTIVE)
            total += x * tl.sum(tl.load(of_row + parts) * weights, 1)
        tl.store(out + edges, total)


@kernel
def to_queries(
    grad, rate, part, weight, row_ptr, keys, out, n_queries, n_keys,
    PARTITIONS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of a query's rates to all parts."""
    row = tl.program_id(0).to(tl.int64)
    first, n_edges = edges_of(row_ptr, row)
    of_row, of_keys = rate + row * (PARTITIONS * SIZE), row // n_queries * n_keys
    columns = tl.arange(0, power_of_two(SIZE))
    for group in tl.static_range(PARTITIONS // 2):
        of_first = tl.zeros((EDGES, power_of_two(SIZE)), out.dtype.element_ty)  # summed over its edges at the end
        of_second = tl.zeros((EDGES, power_of_two(SIZE)), out.dtype.element_ty)
        for start in range(0, n_edges, EDGES):
            edges = start + tl.arange(0, EDGES)
            g = tl.load(grad + first + edges, edges < n_edges, other=0.0)
            tokens = of_keys + tl.load(keys + first + tl.minimum(edges, n_edges - 1))
            parts, weights = parts_of(part, weight, tokens, 2 * group, PARTITIONS, ACTIVE)
            others, of_others = parts_of(part, weight, tokens, 2 * group + 1, PARTITIONS, ACTIVE)
            x = g * tl.sum(tl.load(of_row + others) * of_others, 1)
            y = g * tl.sum(tl.load(of_row + parts) * weights, 1)
            is_part = parts[:, :, None] == 2 * group * SIZE + columns[None, None, :]
            is_other = others[:, :, None] == (2 * group + 1) * SIZE + columns[None, None, :]
            of_first += x[:, None] * tl.sum(tl.where(is_part, weights[:, :, None], 0.0), 1)
            of_second += y[:, None] * tl.sum(tl.where(is_other, of_others[:, :, None], 0.0), 1)
        places = out + row * (PARTITIONS * SIZE) + 2 * group * SIZE + columns
        tl.store(places, tl.sum(of_first, 0), columns < SIZE)
        tl.store(places + SIZE, tl.sum(of_second, 0), columns < SIZE)


@kernel
def to_keys(
    grad, rate, part, weight, column_ptr, queries, positions, row_ptr, out, n_queries, n_keys,
    PARTITIONS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Computes the gradient of how much a key is in each of its parts."""
    token = tl.program_id(0).to(tl.int64)
    first, n_edges = edges_of(column_ptr, token)
    of_queries = token // n_keys * n_queries
    of_edges = tl.load(row_ptr + of_queries)
    active = tl.arange(0, power_of_two(ACTIVE))
    is_active = active < ACTIVE
    for group in tl.static_range(PARTITIONS // 2):
        places = (token * PARTITIONS + 2 * group) * ACTIVE + active
        parts = tl.load(part + places, is_active, other=0).to(tl.int32)
        others = tl.load(part + places + ACTIVE, is_active, other=0).to(tl.int32)
        weights = tl.load(weight + places, is_active, other=0.0)
        of_others = tl.load(weight + places + ACTIVE, is_active, other=0.0)
        of_first = tl.zeros((EDGES, power_of_two(ACTIVE)), out.dtype.element_ty)  # summed over its edges at the end
        of_second = tl.zeros((EDGES, power_of_two(ACTIVE)), out.dtype.element_ty)
        for start in range(0, n_edges, EDGES):
            edges = start + tl.arange(0, EDGES)
            is_edge = edges < n_edges
            edges = first + tl.minimum(edges, n_edges - 1)
            g = tl.load(grad + of_edges + tl.load(positions + edges), is_edge, other=0.0)
            rows = rate + (of_queries + tl.load(queries + edges)) * (PARTITIONS * SIZE)
            x, y = tl.load(rows[:, None] + parts[None, :]), tl.load(rows[:, None] + others[None, :])
            of_first += (g * tl.sum(y * of_others[None, :], 1))[:, None] * x
            of_second += (g * tl.sum(x * weights[None, :], 1))[:, None] * y
        tl.store(out + places, tl.sum(of_first, 0), is_active)
        tl.store(out + places + ACTIVE, tl.sum(of_second, 0), is_active)
