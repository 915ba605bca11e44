"""Words drawn in a kernel are the library's, address by address."""

import pytest
import torch
import triton.language as tl

from sbmt.counter_rng import Purpose, cell_words
from sbmt.gpu import philox
from sbmt.gpu.toolchain import kernel
from tests.gpu.device import DEVICE

drawn = philox.cell_words


@kernel
def write_words(out, seed, example, head, first_row, first_key, ROWS: tl.constexpr, KEYS: tl.constexpr):
    words = drawn(seed.to(tl.int64), example, head, first_row + tl.arange(0, ROWS), first_key, ROWS, KEYS)
    places = tl.arange(0, ROWS)[:, None] * KEYS + tl.arange(0, KEYS)[None, :]
    tl.store(out + places, words.to(tl.int64))


@pytest.mark.parametrize("seed", [0, 12, -5, 0x123456789ABCDEF, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("address", [(0, 0, 0, 0), (7, 3, 5, 64), ((1 << 31) - 8, 65535, (1 << 31) - 100, 1 << 20)])
def test_words_of_a_tile(seed, address):
    example, head, first_row, first_key = address
    out = torch.empty(8, 16, dtype=torch.int64, device=DEVICE)
    write_words[(1,)](out, seed, example, head, first_row, first_key, ROWS=8, KEYS=16)
    rows = first_row + torch.arange(8)
    expected = cell_words_from(seed, example, head, rows, first_key)
    assert torch.equal(out.cpu(), expected)


def cell_words_from(seed, example, head, rows, first_key):
    """The oracle's words of 16 keys from a multiple of four on, without drawing all keys before."""
    from sbmt.counter_rng import random_blocks

    blocks = first_key // 4 + torch.arange(4)
    one = torch.ones(8, 1, dtype=torch.int64)
    words = random_blocks(seed, Purpose.CELL, example * one, head * one, rows[:, None], blocks).flatten(1)
    if first_key == 64:
        near = cell_words(seed, Purpose.CELL, example * one[:, 0], head * one[:, 0], rows, 80)
        assert torch.equal(near[:, 64:], words)
    return words
