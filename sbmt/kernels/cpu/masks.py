"""CSR masks put in the order of their keys, and merged."""

import torch
from torch import Tensor

from sbmt.kernels.cpu.parallel import balanced_parts, equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import ByKey, Mask, as_arrays


def transpose(mask: Mask) -> ByKey:
    """See :attr:`sbmt.EdgeList.by_key`."""
    row_ptr, keys, n_queries, n_keys = mask
    n_graphs = (row_ptr.numel() - 1) // n_queries
    column_ptr = row_ptr.new_empty(n_graphs * n_keys + 1)
    column_ptr[-1] = keys.numel()
    by_key = ByKey(column_ptr, *(torch.empty(keys.shape, dtype=torch.int32) for _ in range(2)))
    parts = equal_parts(n_graphs, 4 * (keys.numel() // n_graphs + n_queries + n_keys))
    in_parallel(transpose_graphs, parts, as_arrays(mask), as_arrays(by_key))
    return by_key


def merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges that are in either mask, given as such pairs too."""
    row_ptr = torch.zeros_like(first[0])
    both = [tuple(t.numpy() for t in mask) for mask in (first, second)]
    parts = balanced_parts(both[0][0] + both[1][0], 8)
    in_parallel(count_union, parts, *both, row_ptr[1:].numpy())
    row_ptr = row_ptr.cumsum(0)
    keys = first[1].new_empty(int(row_ptr[-1]))
    in_parallel(fill_union, parts, *both, row_ptr.numpy(), keys.numpy())
    return row_ptr, keys


@kernel
def transpose_graphs(start, stop, mask, by_key):
    """Fills ``by_key`` for graphs start … stop.

    It is a counting sort: it counts the edges of each column, adds the counts up to the columns' starts, and puts each
    edge in turn at the next free place of its column.
    """
    row_ptr, keys, n_queries, n_keys = mask
    column_ptr, queries, positions = by_key
    for graph in range(start, stop):
        base = row_ptr[graph * n_queries]
        end = row_ptr[(graph + 1) * n_queries]
        to = column_ptr[graph * n_keys : (graph + 1) * n_keys]
        to[:] = 0
        for e in range(base, end):
            to[keys[e]] += 1
        position = base
        for j in range(n_keys):  # counts become starts
            count = to[j]
            to[j] = position
            position += count
        for row in range(graph * n_queries, (graph + 1) * n_queries):
            for e in range(row_ptr[row], row_ptr[row + 1]):
                place = to[keys[e]]
                to[keys[e]] = place + 1
                queries[place] = row - graph * n_queries
                positions[place] = e - base
        for j in range(n_keys - 1, 0, -1):  # each start has moved to its end, which is the next one's start
            to[j] = to[j - 1]
        to[0] = base


@kernel
def count_union(start, stop, first, second, counts):
    """Counts the keys that each of rows start … stop has in either mask."""
    first_ptr, first_keys = first
    second_ptr, second_keys = second
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        count = a_end - a + b_end - b
        while a < a_end and b < b_end:
            x, y = first_keys[a], second_keys[b]
            a += x <= y
            b += y <= x
            count -= x == y
        counts[row] = count


@kernel
def fill_union(start, stop, first, second, row_ptr, keys):
    """Writes the keys that each of rows start … stop has in either mask, in ascending order."""
    first_ptr, first_keys = first
    second_ptr, second_keys = second
    for row in range(start, stop):
        a, a_end, b, b_end = first_ptr[row], first_ptr[row + 1], second_ptr[row], second_ptr[row + 1]
        for to in range(row_ptr[row], row_ptr[row + 1]):
            if b == b_end or (a < a_end and first_keys[a] <= second_keys[b]):
                keys[to] = first_keys[a]
                b += b < b_end and second_keys[b] == first_keys[a]
                a += 1
            else:
                keys[to] = second_keys[b]
                b += 1
