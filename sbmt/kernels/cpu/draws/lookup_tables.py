"""Tables by which a random word picks a key in proportion to its membership in a cluster, mostly in one look-up."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import uint32, uint64

from sbmt.kernels.cpu.draws.bounds import Model
from sbmt.kernels.cpu.threads.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import kernel

COLUMNS = 16  # clusters filled together: their memberships share a cache line
_WORD = 4294967296.0
_LAST = 4294967295  # random words stay below it, so that the last key of positive weight ends every search
_ENTRIES = 1 << 20  # of all the tables that are kept at a time


class Tables(NamedTuple):
    """The tables of some graphs, for every cluster v.

    ``cumulative[t, v, j]`` is Σ_{i ≤ j} K_iv in units of 2⁻³² of the whole: key j owns the words from its predecessor's
    entry up to its own, and none if its weight is zero.

    ``guide[t, v, g]`` serves the words from g · 2³² / n_guide on. The upper half of an entry is 2 j for the first key j
    that owns one of them, and the lower half is the end of j's words; later words belong to j + 1. If a third key owns
    words in the same stretch, the upper half is odd, and the search continues in ``cumulative``.
    """

    of_graph: np.ndarray  # t, the place of each graph's table
    cumulative: np.ndarray
    guide: np.ndarray


def with_tables(
    model: Model, total: np.ndarray, by_clusters: np.ndarray, has_guide: bool
) -> Iterator[tuple[range, Tables]]:
    """Consecutive rows of graphs whose tables fit into the cache together, and those tables.

    Args:
        model: The block model.
        total: Each cluster's summed membership ``(graphs, k)``.
        by_clusters: Which rows read tables; graphs without such rows have none.
        has_guide: Whether so many keys are looked up that a guide pays.
    """
    n_graphs, n_clusters = total.shape
    n_queries, n_keys = model.is_real_query.shape[1], model.real.shape[1]
    needs = np.any(by_clusters.reshape(n_graphs, -1), axis=1)
    at_once = max(1, _ENTRIES // (n_keys * n_clusters))
    group = (needs.cumsum() - needs) // at_once
    size = min(at_once, int(needs.sum())), n_clusters
    # The spare line keeps columns that are filled together from falling on the same few places of the cache.
    n_guide = 1 << (n_keys - 1).bit_length() if has_guide else 0
    room = np.empty((*size, n_keys + COLUMNS), np.uint32), np.empty((*size, n_guide), np.uint64)
    for number in np.unique(group):
        graphs = np.flatnonzero(group == number)
        rows = range(int(graphs[0]) * n_queries, (int(graphs[-1]) + 1) * n_queries)
        have_tables = graphs[needs[graphs]]
        of_graph = np.zeros(n_graphs, np.int64)
        of_graph[have_tables] = np.arange(have_tables.size)
        tables = Tables(of_graph, *room)
        parts = equal_parts(have_tables.size * -(-n_clusters // COLUMNS), 2 * COLUMNS * n_keys)
        in_parallel(build_tables, parts, have_tables, model.key, total, tables)
        yield rows, tables


@kernel
def build_tables(start, stop, graphs, key, total, tables):
    """Fills blocks start … stop of columns, numbered over (table, block of clusters); table t is of ``graphs[t]``."""
    _, cumulative, guide = tables
    n_clusters, n_keys = key.shape[1], cumulative.shape[2] - COLUMNS
    blocks = (n_clusters + COLUMNS - 1) // COLUMNS
    weight, steps = np.empty(COLUMNS), np.empty(COLUMNS)
    for block in range(start, stop):
        table, first = block // blocks, block % blocks * COLUMNS
        graph, width = graphs[table], min(COLUMNS, n_clusters - first)
        weight[:] = 0.0
        for v in range(width):
            whole = total[graph, first + v]
            steps[v] = _WORD / whole if whole > 0.0 else 0.0
        for j in range(n_keys):
            row = key[graph * n_keys + j]
            for v in range(width):
                weight[v] += row[first + v]
                cumulative[table, first + v, j] = uint32(min(weight[v] * steps[v] + 0.5, _LAST))
        for v in range(first, first + width):
            _close(cumulative[table, v, :n_keys])
            if guide.shape[2]:
                _point(cumulative[table, v, :n_keys], guide[table, v])


@kernel
def _close(entry):
    """Gives the last words, which rounding may leave to no key, to the last key that owns any."""
    most = entry[-1]
    for j in range(entry.shape[0] - 1, -1, -1):
        if entry[j] < most:
            break
        entry[j] = uint32(_LAST)


@kernel
def _point(entry, guide):
    """Fills one column of the guide by counting: g's first key is the one before which the words up to g · step end."""
    n_keys, last_key = entry.shape[0], entry.shape[0] - 1
    shift = 32 - int(math.log2(guide.shape[0]) + 0.5)
    step = 1 << shift
    guide[:] = 0
    for j in range(n_keys):
        g = (np.int64(entry[j]) + step - 1) >> shift
        guide[min(g, guide.shape[0] - 1)] += g < guide.shape[0]
    first = 0
    for g in range(guide.shape[0]):
        first += np.int64(guide[g])
        j = min(first, last_key)
        following = entry[min(j + 1, last_key)]
        is_crowded = (j < last_key) & (following < (g + 1) * step) & (entry[j] < _LAST)
        guide[g] = (uint64(2 * j + is_crowded) << uint64(32)) | uint64(entry[j])
