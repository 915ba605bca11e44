"""Tables from which a random word names a key by its membership in a cluster, mostly with a single look."""

import math

import numpy as np
from numba import uint32, uint64

from sbmt.kernels.cpu.toolchain import kernel

COLUMNS = 16  # clusters filled together: their memberships share a cache line
_WORD = 4294967296.0
_LAST = 4294967295  # random words stay below it, so that the last key of positive weight ends every search


@kernel
def build_tables(start, stop, graphs, key, total, n_keys, n_clusters, cumulative, guide):
    """Fills blocks start … stop of columns, numbered over (table, block of clusters); table t is of ``graphs[t]``.

    ``cumulative[t, v, j]`` is Σ_{i ≤ j} K_iv in steps of 2⁻³² of the whole: key j owns the words from its predecessor's
    entry on to below its own, and none if its weight is zero.

    ``guide[t, v, g]`` serves the words from g · 2³² / n_guide on: its upper half is 2 j for the first key j that owns
    one, its lower half where j's words end; whatever follows is j + 1's. Where a third key has words in the same
    stretch, the upper half is odd, and the search goes on in ``cumulative``.
    """
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
            _point(cumulative[table, v, :n_keys], guide[table, v])


@kernel
def _close(entry):
    """Rounding may leave the last words to nobody: they go to the last key that has any."""
    most = entry[-1]
    for j in range(entry.shape[0] - 1, -1, -1):
        if entry[j] < most:
            break
        entry[j] = uint32(_LAST)


@kernel
def _point(entry, guide):
    """One column of the guide, by counting: stretch g starts with the key before which the words up to g · step end."""
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
