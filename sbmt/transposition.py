"""A CSR mask read by columns."""

import torch
from torch import Tensor


def transpose_edges(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """See :attr:`sbmt.EdgeList.by_key`. Cost: O(n + edges) on the CPU, O(edges · log edges) elsewhere."""
    if keys.device.type == "cpu":
        return _transpose(row_ptr, keys, n_queries, n_keys)
    return transpose_by_sorting(row_ptr, keys, n_queries, n_keys)


def transpose_by_sorting(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The plain twin, on any device: a stable sort by key."""
    rows = torch.arange(row_ptr.numel() - 1, device=keys.device)
    row = rows.repeat_interleave(row_ptr.diff(), output_size=keys.numel())
    column = row // n_queries * n_keys + keys
    order = column.argsort(stable=True)
    counts = torch.bincount(column, minlength=rows.numel() // n_queries * n_keys)
    first_of_graph = row_ptr[row // n_queries * n_queries]
    positions = order - first_of_graph[order]
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)), (row % n_queries)[order].int(), positions.int()


@torch.library.custom_op("sbmt::transpose", mutates_args=(), device_types="cpu")
def _transpose(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    from sbmt.compiled.parallel import equal_parts, in_parallel
    from sbmt.compiled.products import transpose

    n_graphs = (row_ptr.numel() - 1) // n_queries
    column_ptr = row_ptr.new_empty(n_graphs * n_keys + 1)
    column_ptr[-1] = keys.numel()
    queries, positions = (torch.empty(keys.shape, dtype=torch.int32) for _ in range(2))
    arrays = (t.numpy() for t in (row_ptr, keys))
    parts = equal_parts(n_graphs, 4 * (keys.numel() // n_graphs + n_queries + n_keys))
    found = (t.numpy() for t in (column_ptr, queries, positions))
    in_parallel(transpose, parts, *arrays, n_queries, n_keys, *found)
    return column_ptr, queries, positions


@_transpose.register_fake
def _(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    n_graphs = (row_ptr.numel() - 1) // n_queries
    int32 = keys.new_empty(keys.shape, dtype=torch.int32)
    return row_ptr.new_empty(n_graphs * n_keys + 1), int32, int32.clone()
