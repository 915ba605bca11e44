"""The keys of every cluster, in order of position: a counting sort, whose shapes do not depend on the memberships."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.tokens import are_real, strided_mask

CHUNK = 32  # keys that are counted together: a causal query visits whole chunks by cluster, and its own key by key
ROWS, COLUMNS = 64, 32  # size of the blocks in which running sums of a table are computed
MOST_CLUSTERS = 256  # clusters per program


class Members(NamedTuple):
    """The keys of each cluster, in order of position; cluster (g, a, b) has number (g · size + a) · size + b."""

    n_before: Tensor  # (graphs, chunks + 1, clusters + 1), counts of keys before each chunk: by cluster, and real keys
    mass: Tensor  # of the same shape, the sum of a cluster's memberships
    starts: Tensor  # int32 (graphs, clusters), where a cluster starts in the next two
    keys: Tensor  # int32 (graphs, 4 · groups · n_keys)
    until: Tensor  # the sum of a cluster's memberships up to each of its keys
    n_real: Tensor  # int32 (graphs, n_keys), number of real keys up to each; unused if all are real


@triton.jit
def _in_clusters(
    part, weight, graph, key, n_keys, first_cluster, group, n_groups, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """Returns which keys are in clusters from ``first_cluster`` of the group on, and how much: ``[keys, BLOCK]``."""
    cluster = first_cluster + tl.arange(0, BLOCK)[None, :]
    a, b = cluster // SIZE, cluster % SIZE
    at, inside = ((graph * n_keys + key) * n_groups + group) * 4, key < n_keys
    is_in_first = (a < 0) & (key < 0)[:, None]
    is_in_second = is_in_first
    first = tl.zeros(is_in_first.shape, weight.dtype.element_ty)
    second = first
    for i in tl.static_range(2):
        x = (tl.load(part + at + i, inside, -1) - 2 * group * SIZE)[:, None]
        y = (tl.load(part + at + 2 + i, inside, -1) - (2 * group + 1) * SIZE)[:, None]
        is_in_first |= x == a
        is_in_second |= y == b
        first += tl.where(x == a, tl.load(weight + at + i, inside, 0.0)[:, None], 0.0)
        second += tl.where(y == b, tl.load(weight + at + 2 + i, inside, 0.0)[:, None], 0.0)
    is_in = is_in_first & is_in_second & inside[:, None] & (cluster < SIZE * SIZE)
    return is_in, tl.where(is_in, first * second, 0.0), cluster


@triton.jit
def _sort_kernel(
    part, weight, number, mass, starts, keys, until, n_real, n_keys, n_groups, key_mask, n_heads,
    HAS_MASK: tl.constexpr, PLACE: tl.constexpr, SIZE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Counts a chunk's keys by cluster or, once the counts are running sums, places them."""
    chunk, graph = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, first = tl.program_id(2) % n_groups, tl.program_id(2) // n_groups * BLOCK
    key = chunk * CHUNK + tl.arange(0, CHUNK)
    is_in, share, cluster = _in_clusters(part, weight, graph, key, n_keys, first, group, n_groups, SIZE, BLOCK)
    n_chunks, n_clusters, inside = tl.num_programs(0), SIZE * SIZE, cluster < SIZE * SIZE
    n_columns = n_groups * n_clusters + 1
    row = (graph * (n_chunks + 1) + chunk) * n_columns
    before = row + group * n_clusters + cluster
    are_counted = are_real(key_mask, graph // n_heads, key, key < n_keys, HAS_MASK).to(tl.int32)
    if PLACE:
        if HAS_MASK & (tl.program_id(2) == 0):
            up_to = tl.load(number + row + n_columns - 1).to(tl.int32) + tl.cumsum(are_counted, 0)
            tl.store(n_real + graph * n_keys + key, up_to, key < n_keys)
        totals = number + (graph * (n_chunks + 1) + n_chunks) * n_columns + group * n_clusters
        start = 4 * group * n_keys  # slots of earlier groups, which have at most four for each key
        for other in range(0, first, BLOCK):
            start += tl.sum(tl.load(totals + other + tl.arange(0, BLOCK)), 0).to(tl.int32)
        of_cluster = tl.load(totals + cluster, inside, 0).to(tl.int32)
        start += tl.cumsum(of_cluster, 1) - of_cluster
        tl.store(starts + (graph * n_groups + group) * n_clusters + cluster, start, inside & (chunk == 0))
        place = start + tl.load(number + before, inside, 0).to(tl.int32) + tl.cumsum(is_in.to(tl.int32), 0) - 1
        to = graph * 4 * n_groups * n_keys + place
        tl.store(keys + to, tl.broadcast_to(key[:, None], to.shape), is_in)
        tl.store(until + to, tl.load(mass + before, inside, 0.0) + tl.cumsum(share, 0), is_in)
    else:
        tl.store(number + before + n_columns, tl.sum(is_in.to(tl.int32), 0)[None, :], inside)
        tl.store(mass + before + n_columns, tl.sum(share, 0)[None, :], inside)
        if tl.program_id(2) == 0:
            tl.store(number + row + 2 * n_columns - 1, tl.sum(are_counted, 0))
            tl.store(mass + row + 2 * n_columns - 1, 0.0)


@triton.jit
def _sum_kernel(table, n_rows, n_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column, r = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :], tl.arange(0, ROWS)[:, None]
    table += tl.program_id(1).to(tl.int64) * n_rows * n_columns + column
    so_far = tl.zeros([1, COLUMNS], table.dtype.element_ty)
    tl.store(table, so_far, column < n_columns)
    for first in range(1, n_rows, ROWS):
        row = (first + r).to(tl.int64)
        inside = (row < n_rows) & (column < n_columns)
        x = tl.load(table + row * n_columns, inside, 0)
        tl.store(table + row * n_columns, so_far + tl.cumsum(x, 0), inside)
        so_far += tl.sum(x, 0)[None, :]


def add_up(tables: Tensor) -> None:
    """Computes exclusive running sums over the rows of tables ``(tables, rows, columns)``, in place."""
    n_tables, n_rows, n_columns = tables.shape
    _sum_kernel[(triton.cdiv(n_columns, COLUMNS), n_tables)](tables, n_rows, n_columns, ROWS, COLUMNS)


def list_members(part: Tensor, weight: Tensor, size: int, key_mask: Tensor | None = None) -> Members:
    """Sorts keys by cluster; weights of padding are 0. Cost: O(n (chunk + groups · size²)) operations, 3 launches.

    The plain twin lists, for each cluster of a graph, the keys with both of its parts among their chosen ones.
    """
    batch, heads, n, n_chosen = part.shape
    n_groups, n_chunks = n_chosen // 4, triton.cdiv(n, CHUNK)
    n_clusters = n_groups * size**2
    block = min(MOST_CLUSTERS, triton.next_power_of_2(size**2))
    number, mass = counts = weight.new_empty(2, batch * heads, n_chunks + 1, n_clusters + 1)
    starts = part.new_empty(batch * heads, n_clusters, dtype=torch.int32)
    keys = starts.new_empty(batch * heads, n_chosen * n)
    until = weight.new_empty(keys.shape)
    n_real = starts if key_mask is None else starts.new_empty(batch * heads, n)
    grid = n_chunks, batch * heads, n_groups * triton.cdiv(size**2, block)
    given, sizes = (part, weight, number, mass, starts, keys, until, n_real, n, n_groups), (size, CHUNK, block)
    masked = strided_mask(key_mask, part), heads, key_mask is not None
    _sort_kernel[grid](*given, *masked, False, *sizes, num_warps=8)
    add_up(counts.flatten(0, 1))
    _sort_kernel[grid](*given, *masked, True, *sizes, num_warps=8)
    return Members(number, mass, starts, keys, until, n_real)
