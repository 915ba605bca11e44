"""Philox4x32-10 in whole batches, so that it is vectorised, and the variates made from its words.

:func:`sbmt.counter_rng.philox` is the plain version: the same key and counters give the same words.
"""

import numpy as np
from numba import uint32, uint64

from sbmt.kernels.cpu.elementary import log
from sbmt.kernels.cpu.toolchain import inlined, kernel, to_the_letter

BATCH = 16  # blocks at a time; one block is four words
_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_HALF = np.uint64(32)
_BELOW = np.uint32(4294967294)  # the largest word but one


@kernel
def fill_words(words, seed, first_block, row, head_and_purpose, example):
    """The uint32 words (4, n) of blocks first_block … first_block + n − 1 of a stream."""
    for b in range(words.shape[1]):
        counter = uint32(first_block + b), uint32(row), uint32(head_and_purpose), uint32(example)
        words[0, b], words[1, b], words[2, b], words[3, b] = _block(counter, seed)


@kernel
def fill_columns(words, start, stop, seed, block, row, head_and_purpose, example):
    """Likewise, but each of columns start … stop has a block and a row of its own, and the largest word does not occur.

    The one below it takes its place.
    """
    for b in range(uint64(start), uint64(stop)):
        w0, w1, w2, w3 = _block((block[b], row[b], uint32(head_and_purpose), uint32(example)), seed)
        words[0, b] = w0 if w0 < _BELOW else _BELOW
        words[1, b] = w1 if w1 < _BELOW else _BELOW
        words[2, b] = w2 if w2 < _BELOW else _BELOW
        words[3, b] = w3 if w3 < _BELOW else _BELOW


@to_the_letter
def fill_uniforms(out, seed, block, first_row, head_and_purpose, example):
    """A 53-bit midpoint uniform for each of some rows, made of the first two words of this block of its stream."""
    for i in range(out.shape[0]):
        counter = uint32(block), uint32(first_row + i), uint32(head_and_purpose), uint32(example)
        w0, w1, _, _ = _block(counter, seed)
        out[i] = _midpoint(w0, w1)


@inlined
def _block(counter, seed):
    """The four words of a block."""
    c0, c1, c2, c3 = counter
    k0, k1 = uint32(seed), uint32(uint64(seed) >> _HALF)
    for _ in range(10):
        p0, p1 = uint64(c0) * _M0, uint64(c2) * _M1
        c0, c2 = uint32(p1 >> _HALF) ^ c1 ^ k0, uint32(p0 >> _HALF) ^ c3 ^ k1
        c1, c3 = uint32(p1), uint32(p0)
        k0, k1 = uint32(k0 + _W0), uint32(k1 + _W1)
    return c0, c1, c2, c3


@to_the_letter
def fill_exponentials(out, words, seed, first_block, row, head_and_purpose, example):
    """2 n exponential variates of mean 1 from n blocks, each −ln of a 53-bit midpoint uniform of half a block."""
    fill_words(words, seed, first_block, row, head_and_purpose, example)
    n = words.shape[1]
    for half in range(2):
        for b in range(n):
            out[half * n + b] = -log(_midpoint(words[2 * half, b], words[2 * half + 1, b]))


@inlined
def _midpoint(upper, lower):
    """The middle of one of 2⁵³ parts of [0, 1]."""
    return (float(upper >> uint32(5)) * 67108864.0 + float(lower >> uint32(6)) + 0.5) / 9007199254740992.0


@kernel
def cell_uniforms(start, stop, row_ptr, keys, seed, n_queries, heads, first_example, out):
    """A uniform for each edge of rows start … stop, the one that :func:`sbmt.counter_rng.cell_words` gives its cell.

    Key j owns word j % 4 of block j // 4.
    """
    query = np.empty(row_ptr[stop] - row_ptr[start], np.uint32)
    while start < stop:
        graph = start // n_queries
        last = min(stop, (graph + 1) * n_queries)
        base, n_edges = row_ptr[start], row_ptr[last] - row_ptr[start]
        for row in range(start, last):
            query[row_ptr[row] - base : row_ptr[row + 1] - base] = row - graph * n_queries
        key, uniform = keys[base : base + n_edges], out[base : base + n_edges]
        head, example = uint32(graph % heads), uint32(graph // heads + first_example)
        for e in range(n_edges):
            j = uint32(key[e])
            w0, w1, w2, w3 = _block((j >> uint32(2), query[e], head, example), seed)
            even, odd = w2 if j & uint32(2) else w0, w3 if j & uint32(2) else w1
            uniform[e] = (float(odd if j & uint32(1) else even) + 0.5) / 4294967296.0
        start = last
