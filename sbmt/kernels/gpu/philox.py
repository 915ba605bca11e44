"""The random words of :mod:`sbmt.counter_rng`, computed in registers for any address."""

import triton.language as tl

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
        low0, high0 = c0 * first, tl.umulhi(c0, first)
        low1, high1 = c2 * second, tl.umulhi(c2, second)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c0, c1, c2, c3


@kernel
def cell_words(seed, example, head, rows, first_key, N_ROWS: tl.constexpr, N_KEYS: tl.constexpr):
    """Draws the words of ``rows`` for the keys from ``first_key`` on: key j owns word j % 4 of block j // 4."""
    blocks = first_key // 4 + tl.arange(0, N_KEYS // 4)
    c0, c1 = tl.broadcast(blocks[None, :].to(tl.uint32), rows[:, None].to(tl.uint32))
    same = tl.zeros_like(c0)  # purpose 0, a query-key pair, leaves the head's word as it is
    w0, w1, w2, w3 = philox(seed, c0, c1, same + head.to(tl.uint32), same + example.to(tl.uint32))
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
