"""Sums and scalar products along the rows of a CSR mask: a piece of a row per program."""

import triton.language as tl

from sbmt.gpu.pieces import locate
from sbmt.gpu.rows import block_of, load_row, load_rows, store_row
from sbmt.gpu.toolchain import kernel


@kernel
def sum_along(
    weights, vectors, row_ptr, entries, positions, weight_ptr, piece_row, piece_ptr, slot_ptr, out, part,
    n_rows, n_in, n_other, WIDTH: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Σ weight · vector over the entries of a piece of a row.

    Rows come ``n_in`` to a graph, the vectors that they point to ``n_other``. The weight of an entry stands at its own
    place, or, if there are ``positions``, where these say, counted from ``weight_ptr[graph · n_other]``.
    """
    row, first, last, slot = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    graph = row // n_in
    dtype = part.dtype.element_ty
    total = tl.zeros((block_of(WIDTH),), dtype)
    for start in range(first, last, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < last
        places = edges
        if positions is not None:
            places = tl.load(weight_ptr + graph * n_other) + tl.load(positions + edges, is_edge, other=0)
        weight = tl.load(weights + places, is_edge, other=0.0).to(dtype)
        rows = graph * n_other + tl.load(entries + edges, is_edge, other=0)
        total += tl.sum(weight[:, None] * load_rows(vectors, rows, is_edge, WIDTH).to(dtype), 0)
    if slot < 0:
        store_row(out, row, total, WIDTH)
    else:
        store_row(part, slot, total, WIDTH)


@kernel
def join_sums(out, part, slot_ptr, WIDTH: tl.constexpr):
    """Adds up the pieces of a row."""
    row = tl.program_id(0).to(tl.int64)
    first, last = tl.load(slot_ptr + row), tl.load(slot_ptr + row + 1)
    if first < last:
        total = load_row(part, first, WIDTH)
        for slot in range(first + 1, last):
            total += load_row(part, slot, WIDTH)
        store_row(out, row, total, WIDTH)


@kernel
def dots_along(
    query, key, row_ptr, keys, piece_row, piece_ptr, slot_ptr, out, n_rows, n_queries, n_keys,
    WIDTH: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """⟨query, key⟩ of every edge of a piece of a row."""
    row, first, last, _ = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    dtype = out.dtype.element_ty
    q = load_row(query, row, WIDTH).to(dtype)
    for start in range(first, last, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < last
        rows = row // n_queries * n_keys + tl.load(keys + edges, is_edge, other=0)
        k = load_rows(key, rows, is_edge, WIDTH).to(dtype)
        tl.store(out + edges, tl.sum(k * q[None, :], 1), is_edge)
