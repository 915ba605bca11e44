"""Philox4x32-10 for compiled loops: the words of :func:`sbmt.counter_rng.philox`, one block at a time."""

import numpy as np
from numba import uint32, uint64

from sbmt.kernels.cpu.compile import inline_loop

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_HALF = np.uint64(32)


@inline_loop
def philox(seed, block, row, head_and_purpose, example):
    """The four random words, uint32, of one address."""
    c0, c1, c2, c3 = uint32(block), uint32(row), uint32(head_and_purpose), uint32(example)
    k0, k1 = uint32(seed), uint32(uint64(seed) >> _HALF)
    for _ in range(10):
        p0, p1 = uint64(c0) * _M0, uint64(c2) * _M1
        c0, c2 = uint32(p1 >> _HALF) ^ c1 ^ k0, uint32(p0 >> _HALF) ^ c3 ^ k1
        c1, c3 = uint32(p1), uint32(p0)
        k0, k1 = uint32(k0 + _W0), uint32(k1 + _W1)
    return c0, c1, c2, c3


@inline_loop
def uniform(word):
    """The midpoint uniform of a word, as :func:`sbmt.counter_rng.to_uniform` makes it."""
    return (float(word) + 0.5) / 4294967296.0


@inline_loop
def fine_uniform(upper, lower):
    """The middle of one of 2⁵³ parts of [0, 1], from two words."""
    return (float(upper >> uint32(5)) * 67108864.0 + float(lower >> uint32(6)) + 0.5) / 9007199254740992.0


@inline_loop
def cell_uniform(seed, key, row, head_and_purpose, example):
    """The uniform of one query-key pair: key j owns word j % 4 of block j // 4, as in ``counter_rng.cell_words``."""
    w0, w1, w2, w3 = philox(seed, key >> 2, row, head_and_purpose, example)
    even, odd = (w2, w3) if key & 2 else (w0, w1)
    return uniform(odd if key & 1 else even)
