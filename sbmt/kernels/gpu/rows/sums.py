"""Sums and scalar products along the rows of a CSR mask, one piece of a row per program."""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import block_of, load_row, load_rows, store_row
from sbmt.kernels.gpu.rows.pieces import locate
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def sum_along(
    weights, vectors, row_ptr, entries, positions, weight_ptr, piece_row, piece_ptr, slot_ptr, out, part,
    n_rows, n_in, n_other, WIDTH: tl.constexpr, PIECE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Computes Σ weight · vector over the entries of a piece of a row.

    A graph has ``n_in`` rows, which point to ``n_other`` vectors. The weight of entry e is ``weights[e]``, or, given
    ``positions``, ``weights[weight_ptr[graph · n_other] + positions[e]]``.
    """
    row, first, n_edges, slot = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    graph = row // n_in
    dtype = part.dtype.element_ty
    sums = tl.zeros((EDGES, block_of(WIDTH)), dtype)  # summed over its entries at the end
    of_weights = first if positions is None else tl.load(weight_ptr + graph * n_other)
    for start in range(0, n_edges, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < n_edges
        edges = tl.minimum(edges, n_edges - 1)  # beyond the end, the last entry is repeated
        places = edges if positions is None else tl.load(positions + first + edges)
        weight = tl.where(is_edge, tl.load(weights + of_weights + places).to(dtype), 0.0)
        found = load_rows(vectors + graph * n_other * WIDTH, tl.load(entries + first + edges).to(tl.int32), None, WIDTH)
        sums = tl.fma(tl.broadcast_to(weight[:, None], sums.shape), found.to(dtype), sums)
    total = tl.sum(sums, 0)
    if slot < 0:
        store_row(out, row, total, WIDTH)
    else:
        store_row(part, slot, total, WIDTH)


@kernel
def join_sums(out, part, slot_ptr, WIDTH: tl.constexpr):
    """Adds the pieces of a row."""
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
    """Computes ⟨query, key⟩ for every edge of a piece of a row."""
    row, first, n_edges, _ = locate(piece_row, piece_ptr, slot_ptr, row_ptr, n_rows, PIECE)
    if row >= n_rows:
        return
    dtype = out.dtype.element_ty
    q = load_row(query, row, WIDTH).to(dtype)
    of_keys = row // n_queries * n_keys
    for start in range(0, n_edges, EDGES):
        edges = tl.minimum(start + tl.arange(0, EDGES), n_edges - 1)  # beyond the end, the last edge is repeated
        k = load_rows(key + of_keys * WIDTH, tl.load(keys + first + edges).to(tl.int32), None, WIDTH).to(dtype)
        tl.store(out + first + edges, tl.sum(k * q[None, :], 1))
