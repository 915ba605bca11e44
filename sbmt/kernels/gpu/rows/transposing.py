"""Puts the edges of CSR masks in the order of their keys by counting instead of sorting.

Each program has ``ROWS`` rows of one graph. The first kernel counts its edges in every column. Cumulative sums of the
counts then tell each program where its edges begin in a column, and the second kernel writes them there row by row.
Queries therefore ascend in every column, and nothing depends on the order in which programs run.
"""

import torch
import triton.language as tl

from sbmt.kernels.gpu.toolchain import kernel
from sbmt.kernels.structures import ByKey, Mask

EDGES = 128  # at a time


@kernel
def count_columns(row_ptr, keys, counts, n_queries, n_keys, n_blocks, ROWS: tl.constexpr, EDGES: tl.constexpr):
    """Counts the edges that this program's rows have in each column."""
    program = tl.program_id(0).to(tl.int64)
    first = program // n_blocks * n_queries + program % n_blocks * ROWS
    after = program // n_blocks * n_queries + tl.minimum(program % n_blocks * ROWS + ROWS, n_queries)
    start, stop = tl.load(row_ptr + first), tl.load(row_ptr + after)
    for at in range(start, stop, EDGES):
        edges = at + tl.arange(0, EDGES)
        is_edge = edges < stop
        columns = tl.load(keys + edges, is_edge, other=0)
        tl.atomic_add(counts + program * n_keys + columns, tl.full((EDGES,), 1, tl.int32), is_edge)


@kernel
def fill_columns(
    row_ptr, keys, before, column_ptr, queries, positions, n_queries, n_keys, n_blocks,
    ROWS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """Writes each edge's query, and its position among its graph's edges, to its place in the column."""
    program = tl.program_id(0).to(tl.int64)
    graph = program // n_blocks
    first = graph * n_queries + program % n_blocks * ROWS
    after = graph * n_queries + tl.minimum(program % n_blocks * ROWS + ROWS, n_queries)
    of_graph = tl.load(row_ptr + graph * n_queries)
    for row in range(first, after):
        start, stop = tl.load(row_ptr + row), tl.load(row_ptr + row + 1)
        for at in range(start, stop, EDGES):
            edges = at + tl.arange(0, EDGES)
            is_edge = edges < stop
            columns = tl.load(keys + edges, is_edge, other=0)
            ones = tl.full((EDGES,), 1, tl.int32)
            place = tl.atomic_add(before + program * n_keys + columns, ones, is_edge)  # no other program adds to it
            place += tl.load(column_ptr + graph * n_keys + columns, is_edge, other=0)
            tl.store(queries + place, tl.zeros_like(ones) + (row - graph * n_queries).to(tl.int32), is_edge)
            tl.store(positions + place, (edges - of_graph).to(tl.int32), is_edge)
        tl.debug_barrier()  # so that the next row's edges follow these


def transpose(mask: Mask) -> ByKey:
    """See :attr:`sbmt.EdgeList.by_key`. Memory: one count per column and program, at most about edges + columns."""
    row_ptr, keys, n_queries, n_keys = mask
    n_graphs = (row_ptr.numel() - 1) // n_queries
    per_column = max(1, keys.numel() // (n_graphs * n_keys))
    n_rows = 1 << max(6, (-(-n_queries // per_column) - 1).bit_length())  # of a program: at most per_column programs
    n_blocks = -(-n_queries // n_rows)
    counts = torch.zeros(n_graphs, n_blocks, n_keys, dtype=torch.int32, device=keys.device)
    sizes, options = (n_queries, n_keys, n_blocks), {"ROWS": n_rows, "EDGES": EDGES, "num_warps": 4}
    count_columns[(n_graphs * n_blocks,)](row_ptr, keys, counts, *sizes, **options)
    column_ptr = torch.nn.functional.pad(counts.sum(1).flatten().cumsum(0), (1, 0))
    before = (counts.cumsum(1, dtype=torch.int32) - counts).contiguous()
    queries, positions = (torch.empty(keys.shape, dtype=torch.int32, device=keys.device) for _ in range(2))
    fill_columns[(n_graphs * n_blocks,)](row_ptr, keys, before, column_ptr, queries, positions, *sizes, **options)
    return ByKey(column_ptr, queries, positions)
