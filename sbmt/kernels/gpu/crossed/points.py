"""Poisson points of rows: how many there are, and which keys they name."""

import triton.language as tl

from sbmt.kernels.gpu.draws import CANDIDATE, exponential, words_from
from sbmt.kernels.gpu.rows.blocks import power_of_two
from sbmt.kernels.gpu.toolchain import kernel

UNIT = tl.constexpr(float(1 << 40))  # of memberships in pairs, which are summed as integers so that sums have no order


@kernel
def enter(
    part, weight, key_mask, pair_out, weight_out, n_tokens, n_heads, n_keys, no_pair,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, ACTIVE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Writes to which pairs of parts each key belongs, all graphs' pairs in one count, and how much.

    Padding belongs to ``no_pair``.
    """
    tokens = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    is_token = tokens < n_tokens
    graph = tokens // n_keys
    is_real = is_token
    if key_mask is not None:
        is_real &= tl.load(key_mask + graph // n_heads * n_keys + tokens % n_keys, is_token, other=0) != 0
    active = tl.arange(0, power_of_two(ACTIVE))
    is_there = is_token[:, None] & (active < ACTIVE)[None, :]
    for group in tl.static_range(GROUPS):
        places = (tokens * (2 * GROUPS) + 2 * group)[:, None] * ACTIVE + active[None, :]
        first = tl.load(part + places, is_there, other=0).to(tl.int32) - 2 * group * SIZE
        second = tl.load(part + places + ACTIVE, is_there, other=0).to(tl.int32) - (2 * group + 1) * SIZE
        of_first = tl.load(weight + places, is_there, other=0.0).to(tl.float64)
        of_second = tl.load(weight + places + ACTIVE, is_there, other=0.0).to(tl.float64)
        pair = (graph * GROUPS + group).to(pair_out.dtype.element_ty)[:, None, None] * (SIZE * SIZE)
        pair += first[:, :, None] * SIZE + second[:, None, :]
        pair = tl.where(is_real[:, None, None], pair, no_pair)
        share = (of_first[:, :, None] * of_second[:, None, :] * UNIT).to(tl.int64)
        entry = ((tokens * GROUPS + group)[:, None] * ACTIVE + active[None, :])[:, :, None] * ACTIVE
        entry += active[None, None, :]
        is_entry = is_there[:, :, None] & (active < ACTIVE)[None, None, :]
        tl.store(pair_out + entry, pair, is_entry)
        tl.store(weight_out + entry, share, is_entry)


@kernel
def scatter(
    rate, mass, pair_ptr, sums, entries, query_mask, key_mask, delta_in, point_ptr, out,
    seed, first_example, n_heads, n_queries, n_keys, reach, dense, too_many,
    GROUPS: tl.constexpr, SIZE: tl.constexpr, ENTRIES: tl.constexpr, POINTS: tl.constexpr, IS_COUNT: tl.constexpr,
):  # fmt: skip
    r"""Counts the points of a row, or writes the cells that they name from ``point_ptr[row]`` on; -1 for none.

    The first 2 · ``reach`` + 1 of them name the keys at most so many places away; a reach of -1 stands for none. The
    others lie on a line, at distances that are exponential variates. On it part b of the first partition of group g is
    $u_b \sum_c M_{bc} v_c$ long, where u and v are the query's rates to the parts of the group's partitions, and M says
    how much the keys are in each pair; behind all of them comes exploration, δ · n long. A point falls to a part, from
    there to a pair in proportion to $M_{bc} v_c$, and in it to a key in proportion to what that adds to M, whose
    running ``sums`` are those of the pairs' ``entries``. A row with more than ``dense`` · n points counts
    ``too_many``. As many points are written as were counted, even if the two passes should round differently.
    """
    LINES: tl.constexpr = power_of_two(GROUPS * SIZE)
    row = tl.program_id(0).to(tl.int64)
    graph, query = row // n_queries, row % n_queries
    head, example = graph % n_heads, graph // n_heads
    columns = tl.arange(0, power_of_two(SIZE))
    lines = tl.arange(0, LINES)
    of_row, of_graph = rate + row * (2 * GROUPS * SIZE), graph * (GROUPS * SIZE)
    is_line, is_column = lines < GROUPS * SIZE, columns < SIZE
    group = lines // SIZE
    u = tl.load(of_row + 2 * group * SIZE + lines % SIZE, is_line, other=0.0)
    is_cell = is_line[:, None] & is_column[None, :]
    v = tl.load(of_row + ((2 * group + 1) * SIZE)[:, None] + columns[None, :], is_cell, other=0.0)
    m = tl.load(mass + (of_graph + lines)[:, None] * SIZE + columns[None, :], is_cell, other=0.0)
    ends = tl.cumsum((u * tl.sum(v * m, 1)).to(tl.float64), 0)
    reached = tl.max(ends, 0)
    end = reached + tl.load(delta_in) * n_keys
    n_near = tl.full((), 0, tl.int64) + n_keys  # those before this number may be in the window
    if query_mask is not None:
        has_edges = tl.load(query_mask + example * n_queries + query) != 0
        end, n_near = tl.where(has_edges, end, 0.0), tl.where(has_edges, n_near, 0)
    is_dense, width = end > dense * n_keys, tl.maximum(2 * reach + 1, 0)
    place = tl.where(is_dense, end, 0.0).to(tl.float64)
    n_points = tl.where(is_dense, too_many, width).to(tl.int64)
    n_blocks = tl.full((), 0, tl.int64)
    start = tl.full((), 0, tl.int64) if IS_COUNT else tl.load(point_ptr + row)
    n_counted = start if IS_COUNT else tl.load(point_ptr + row + 1) - start
    if not IS_COUNT:
        for first in range(0, width, POINTS):
            numbers = first + tl.arange(0, POINTS)
            keys = query - reach + numbers
            is_near = (numbers < width) & (keys >= 0) & (keys < n_near)
            if key_mask is not None:
                is_near &= tl.load(key_mask + example * n_keys + keys, is_near, other=0) != 0
            tl.store(out + start + numbers, tl.where(is_near, row * n_keys + keys, -1), numbers < width)
    key_seed, number = seed.to(tl.int64), example + first_example
    goes_on = place < end if IS_COUNT else n_points < n_counted
    while goes_on:
        w0, w1, w2, w3 = words_from(key_seed, n_blocks, query, head + CANDIDATE, number, POINTS)
        places = place + tl.cumsum(exponential(w0, w1), 0)
        is_point = places < end if IS_COUNT else n_points + tl.arange(0, POINTS) < n_counted
        if not IS_COUNT:
            line = tl.minimum(tl.sum((ends[None, :] <= places[:, None]).to(tl.int32), 1), GROUPS * SIZE - 1)
            is_there = is_point[:, None] & is_column[None, :]
            second = ((2 * (line // SIZE) + 1) * SIZE)[:, None] + columns[None, :]
            shares = tl.load(of_row + second, is_there, other=0.0)
            shares *= tl.load(mass + (of_graph + line)[:, None] * SIZE + columns[None, :], is_there, other=0.0)
            shares = tl.cumsum(shares, 1)
            limit = (w2 >> 8).to(tl.float32) * 5.9604644775390625e-08 * tl.max(shares, 1)  # a number in [0, 1)
            column = tl.minimum(tl.sum((shares <= limit[:, None]).to(tl.int32), 1), SIZE - 1)
            pair = (of_graph + line) * SIZE + column
            low = tl.load(pair_ptr + pair, is_point, other=0)
            high = tl.load(pair_ptr + pair + 1, is_point, other=0)
            base = tl.load(sums + low)
            whole = tl.load(sums + high) - base
            target = ((w3.to(tl.float64) + 0.5) / 4294967296.0 * whole.to(tl.float64)).to(tl.int64)
            is_hit = is_point & (whole > 0)
            high = tl.where(is_hit, high - 1, low)  # the last one, if none before it reaches so far
            while tl.max(high - low, 0) > 0:
                middle = (low + high) // 2
                is_beyond = tl.load(sums + middle + 1) - base <= target
                low, high = (
                    tl.where((low < high) & is_beyond, middle + 1, low),
                    tl.where((low < high) & ~is_beyond, middle, high),
                )
            key = tl.load(entries + low, is_hit, other=0) // ENTRIES % n_keys
            is_extra = places >= tl.where(end > reached, reached, float("inf"))
            extra = (w3.to(tl.int64) * n_keys) >> 32
            is_real = is_point
            if key_mask is not None:
                is_real &= tl.load(key_mask + example * n_keys + extra, is_extra & is_point, other=0) != 0
            key, is_hit = tl.where(is_extra, extra, key), tl.where(is_extra, is_real, is_hit)
            cells = tl.where(is_hit, row * n_keys + key, -1)
            tl.store(out + start + n_points + tl.arange(0, POINTS), cells, is_point)
        n_points += tl.sum(is_point.to(tl.int64), 0)
        n_blocks += POINTS
        place = tl.max(places, 0)
        goes_on = place < end if IS_COUNT else n_points < n_counted
    if IS_COUNT:
        tl.store(out + row, n_points)
