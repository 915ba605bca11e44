"""The random words of :mod:`sbmt.counter_rng`, computed in registers for any address."""

import triton.language as tl

from sbmt.kernels.gpu.instructions import wide_product
from sbmt.kernels.gpu.toolchain import kernel

ROUNDS = tl.constexpr(10)


@kernel
def philox(seed, c0, c1, c2, c3):
    """Philox4x32-10: four words for each counter, given uint32 counters of one shape and an int64 seed."""
    first: tl.constexpr = 0xD2511F53
    second: tl.constexpr = 0xCD9E8D57
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(ROUNDS):
        low0, high0 = wide_product(c0, first)
        low1, high1 = wide_product(c2, second)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@kernel
def keys_of_tile(first_key, N_KEYS: tl.constexpr):
    """Returns the keys from ``first_key`` on, in the order of a tile's columns.

    Of every 16 columns, thread l of a matrix unit holds columns 2l, 2l + 1, 8 + 2l and 8 + 2l + 1. They are given the
    keys 4l … 4l + 3, which share a block of four words: each thread draws the words it needs, and none are exchanged.
    """
    columns = tl.arange(0, N_KEYS)
    return first_key + columns // 16 * 16 + columns % 8 // 2 * 4 + columns % 16 // 8 * 2 + columns % 2


@kernel
def words_of_cells(seed, example, head, rows, blocks):
    """Draws the four words of each block of keys, for rows and blocks that broadcast, in two more dimensions of 2."""
    c0, c1 = tl.broadcast(blocks.to(tl.uint32), rows.to(tl.uint32))
    same = tl.zeros_like(c0)  # purpose 0, a query-key pair, leaves the head's word as it is
    w0, w1, w2, w3 = philox(seed, c0, c1, same + head.to(tl.uint32), same + example.to(tl.uint32))
    return tl.join(tl.join(w0, w2), tl.join(w1, w3))


@kernel
def cell_words(seed, example, head, rows, first_key, N_ROWS: tl.constexpr, N_KEYS: tl.constexpr):
    """Draws the words of ``rows`` for the keys of :func:`keys_of_tile`: key j owns word j % 4 of block j // 4."""
    blocks = first_key // 4 + tl.arange(0, N_KEYS // 4)
    words = words_of_cells(seed, example, head, rows[:, None], blocks[None, :])
    return words.reshape(N_ROWS, N_KEYS // 16, 4, 2, 2).permute(0, 1, 3, 2, 4).reshape(N_ROWS, N_KEYS)


@kernel
def cell_words_by_key(seed, example, head, rows, first_key, N_ROWS: tl.constexpr, N_KEYS: tl.constexpr):
    """Draws the same words with the keys from ``first_key`` on as rows of the result and queries as its columns."""
    blocks = first_key // 4 + tl.arange(0, N_KEYS // 4)
    words = words_of_cells(seed, example, head, rows[None, :], blocks[:, None])
    return words.permute(0, 2, 3, 1).reshape(N_KEYS, N_ROWS)
