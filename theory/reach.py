"""Which tokens have reached which, as rows of packed bits.

A layer takes the OR of the rows that each query attends. That moves (entries of the pattern) · n / 8 bytes; no
integer product of n × n matrices is ever formed.
"""

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy as np
from scipy.sparse import csr_array

_GATHER_BYTES = 1 << 26  # the most that one step may copy
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def pack(sets: np.ndarray) -> np.ndarray:
    """Packs rows of booleans into rows of 64-bit words; the bits beyond the last column are 0."""
    padded = np.pad(sets, ((0, 0), (0, -sets.shape[1] % 64)))
    return np.packbits(padded, axis=1).view(np.uint64)


def unpack(packed: np.ndarray, n: int) -> np.ndarray:
    """The inverse of :func:`pack`, n booleans per row."""
    return np.unpackbits(packed.view(np.uint8), axis=1, count=n).astype(bool)


def apply_layer(layer: csr_array, reached: np.ndarray) -> np.ndarray:
    """One boolean product: row i becomes the OR of the rows that query i attends, and empty if it attends none."""
    out = np.zeros_like(reached)
    degrees = np.diff(layer.indptr)
    rows_with_keys = np.flatnonzero(degrees)
    start = 0
    while start < rows_with_keys.size:  # in groups of rows whose copies fit into _GATHER_BYTES
        ends = np.cumsum(degrees[rows_with_keys[start:]], dtype=np.int64) * reached.shape[1] * reached.itemsize
        stop = start + max(1, int(np.searchsorted(ends, _GATHER_BYTES, side="right")))
        rows = rows_with_keys[start:stop]
        keys = layer.indices[layer.indptr[rows[0]] : layer.indptr[rows[-1] + 1]]
        begins = layer.indptr[rows] - layer.indptr[rows[0]]
        out[rows] = np.bitwise_or.reduceat(reached[keys], begins, axis=0)
        start = stop
    return out


def layer_by_layer(layers: Sequence[csr_array]) -> Iterator[np.ndarray]:
    """The packed sets S(1), S(2), …, with S(t) = A_l S(t − 1), S(0) = I and l cycling through the layers for ever."""
    reached = pack(np.eye(layers[0].shape[0], dtype=bool))
    for layer in cycle(layers):
        reached = apply_layer(layer, reached)
        yield reached


def sizes(reached: np.ndarray) -> list[int]:
    """The sizes |S_i|: how many tokens have reached token i."""
    return _ONES[reached.view(np.uint8)].sum(1, dtype=np.int64).tolist()


def is_full(reached: np.ndarray) -> bool:
    """Whether every token has reached every token."""
    n = reached.shape[0]
    return bool((reached == pack(np.ones((1, n), dtype=bool))).all())


def is_ever_full(layers: Sequence[csr_array]) -> bool:
    """Whether S(t) is full for some t beyond the first cycle, and therefore in every later cycle.

    Write P = A_p … A_1. S at layer l of cycle m is A_l … A_1 P^m. Once that is full it stays full in every cycle:
    the product over one cycle then has no empty row, and such a matrix maps the full matrix to itself. The powers of
    an n × n boolean matrix repeat from exponent (n − 1)² + 1 at the latest (Wielandt, Schwarz), so one high enough
    power, reached by squaring, decides.

    Cost: O(n³ log n / 64) words.
    """
    n = layers[0].shape[0]
    power = pack(np.eye(n, dtype=bool))
    for layer in layers:
        power = apply_layer(layer, power)
    for _ in range(((n - 1) ** 2 + 1).bit_length()):
        power = apply_layer(csr_array(unpack(power, n)), power)
    for layer in layers:
        if is_full(power):
            return True
        power = apply_layer(layer, power)
    return False
