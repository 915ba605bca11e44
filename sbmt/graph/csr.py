"""Masks in compressed sparse rows, as plain tensors: transposing, merging and repeating them, and windows.

:class:`sbmt.EdgeList` is the class that users see; its methods call these functions. Each fast version stands beside a
plain one that gives the same result on any device.
"""

import torch
from torch import Tensor

from sbmt.compiling import not_compiled
from sbmt.kernels import rows as kernels
from sbmt.kernels.cpu import can_run_on


def transpose_edges(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The mask sorted by key, see :attr:`sbmt.EdgeList.by_key`. Cost: O(n + edges); a sort where no kernels run."""
    if can_run_on(keys.device):
        return kernels.transpose(row_ptr, keys, n_queries, n_keys)
    return transpose_by_sorting(row_ptr, keys, n_queries, n_keys)


def transpose_by_sorting(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain torch, on any device: a stable sort by key."""
    rows = torch.arange(row_ptr.numel() - 1, device=keys.device)
    row = rows.repeat_interleave(row_ptr.diff(), output_size=keys.numel())
    column = row // n_queries * n_keys + keys
    column, order = column.sort(stable=True)
    column_ptr = first_of_rows(column, rows.numel() // n_queries * n_keys, 1)
    first_of_graph = row_ptr[row // n_queries * n_queries]
    positions = order - first_of_graph[order]
    return column_ptr, (row % n_queries)[order].int(), positions.int()


def merge_rows(
    first_ptr: Tensor, first_keys: Tensor, second_ptr: Tensor, second_keys: Tensor, n_keys: int
) -> tuple[Tensor, Tensor]:
    """The union of two masks, as ``row_ptr`` and ``keys``. Cost: O(n + edges); a sort where no kernels run."""
    if can_run_on(first_keys.device):
        return kernels.merge_rows(first_ptr, first_keys, second_ptr, second_keys)
    return merge_rows_by_sorting(first_ptr, first_keys, second_ptr, second_keys, n_keys)


def first_of_rows(cells: Tensor, n_rows: int, n_keys: int) -> Tensor:
    """``row_ptr`` of ascending cells. Cost: O(n · log(edges)), without any wait for a GPU."""
    return torch.searchsorted(cells, n_keys * torch.arange(n_rows + 1, device=cells.device))


def _cells(row_ptr: Tensor, keys: Tensor, n_keys: int) -> Tensor:
    rows = torch.arange(row_ptr.numel() - 1, device=keys.device)
    return rows.repeat_interleave(row_ptr.diff(), output_size=keys.numel()) * n_keys + keys


def merge_rows_by_sorting(
    first_ptr: Tensor, first_keys: Tensor, second_ptr: Tensor, second_keys: Tensor, n_keys: int
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, on any device: a sort of all cells."""
    cells = torch.cat([_cells(first_ptr, first_keys, n_keys), _cells(second_ptr, second_keys, n_keys)]).unique()
    return first_of_rows(cells, first_ptr.numel() - 1, n_keys), cells % n_keys


def add_window(
    row_ptr: Tensor,
    keys: Tensor,
    shape: tuple[int, int, int, int],
    reach: int,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The union of a mask with the pairs (i, j) of real tokens with |i − j| ≤ reach, as ``row_ptr`` and ``keys``.

    Args:
        row_ptr: Of the mask.
        keys: Of the mask.
        shape: ``(batch, heads, n, n)``.
        reach: How far a token sees to either side, ≥ 0.
        query_mask: bool ``(batch, n)``, True = real token; None = all real.
        key_mask: bool ``(batch, n)``, the same for keys.

    Cost: O(n · reach + edges) per graph; a sort where no kernels run.
    """
    if can_run_on(keys.device):
        return kernels.with_window(row_ptr, keys, *shape[2:], min(reach, shape[3]), shape[1], query_mask, key_mask)
    return add_window_by_cells(row_ptr, keys, shape, reach, query_mask, key_mask)


@not_compiled  # PyTorch 2.13's inductor makes code of it that fails at the second sequence length
def add_window_by_cells(
    row_ptr: Tensor,
    keys: Tensor,
    shape: tuple[int, int, int, int],
    reach: int,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The same in plain torch, on any device: all cells of the window, and a sort."""
    batch, heads, n, _ = shape
    reach = min(reach, n - 1)
    query = torch.arange(n, device=keys.device)[:, None].expand(n, 2 * reach + 1)
    key = query + torch.arange(-reach, reach + 1, device=keys.device)
    is_inside = ((key >= 0) & (key < n)).expand(batch, heads, n, -1)
    for mask, token in ((query_mask, query), (key_mask, key)):
        if mask is not None:
            is_inside = is_inside & mask[:, token.clamp(0, n - 1)][:, None]
    near_ptr = torch.nn.functional.pad(is_inside.sum(-1).flatten().cumsum(0), (1, 0))
    return merge_rows_by_sorting(row_ptr, keys, near_ptr, key.expand(is_inside.shape)[is_inside], n)


def repeat_graphs(
    row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Each graph as often as there are heads: ``row_ptr``, ``keys``, and which edge each is a copy of.

    Cost: O(heads · (n + edges)).
    """
    if can_run_on(keys.device):
        copies: tuple[Tensor, Tensor, Tensor] = kernels.repeat(row_ptr, keys, n_queries, n_keys, heads)
        return copies
    return repeat_by_indexing(row_ptr, keys, n_queries, heads)


def repeat_by_indexing(row_ptr: Tensor, keys: Tensor, n_queries: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same in plain torch, on any device."""
    degrees = row_ptr.diff().view(-1, 1, n_queries).expand(-1, heads, -1).flatten()
    new_ptr = torch.nn.functional.pad(degrees.cumsum(0), (1, 0))
    first, first_of_copy = row_ptr[:-1:n_queries].repeat_interleave(heads), new_ptr[::n_queries]
    n_edges = heads * keys.numel()
    source = torch.arange(n_edges, device=keys.device)
    source += (first - first_of_copy[:-1]).repeat_interleave(first_of_copy.diff(), output_size=n_edges)
    return new_ptr, keys.index_select(0, source), source


def near_edges(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, reach: int) -> Tensor:
    """Whether each edge joins tokens at most ``reach`` places apart. Cost: O(n + edges)."""
    if can_run_on(keys.device):
        near: Tensor = kernels.near(row_ptr, keys, n_queries, n_keys, reach)
        return near
    return near_by_repeating(row_ptr, keys, n_queries, reach)


def near_by_repeating(row_ptr: Tensor, keys: Tensor, n_queries: int, reach: int) -> Tensor:
    """The same in plain torch, on any device: every query is repeated for each of its edges."""
    query = torch.arange(row_ptr.numel() - 1, device=keys.device) % n_queries
    return (query.repeat_interleave(row_ptr.diff(), output_size=keys.numel()) - keys).abs() <= reach
