"""Words drawn in a kernel are the library's, address by address."""

import pytest
import torch
import triton.language as tl

from sbmt.counter_rng import Purpose, cell_words
from sbmt.kernels.gpu import philox
from sbmt.kernels.gpu.toolchain import kernel
from tests.kernels.gpu.device import DEVICE

draw_by_query, draw_by_key, keys_of_tile = philox.cell_words, philox.cell_words_by_key, philox.keys_of_tile


@kernel
def write_words(
    out, by_key, seed, example, head, first_row, first_key, ROWS: tl.constexpr, KEYS: tl.constexpr
):  # a column of ``out`` for each key
    rows = tl.arange(0, ROWS)
    words = draw_by_query(seed.to(tl.int64), example, head, first_row + rows, first_key, ROWS, KEYS)
    columns = keys_of_tile(first_key, KEYS) - first_key
    tl.store(out + rows[:, None] * KEYS + columns[None, :], words.to(tl.int64))
    words = draw_by_key(seed.to(tl.int64), example, head, first_row + rows, first_key, ROWS, KEYS)
    tl.store(by_key + rows[None, :] * KEYS + tl.arange(0, KEYS)[:, None], words.to(tl.int64))


@pytest.mark.parametrize("seed", [0, 12, -5, 0x123456789ABCDEF, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("address", [(0, 0, 0, 0), (7, 3, 5, 64), ((1 << 31) - 8, 65535, (1 << 31) - 100, 1 << 20)])
def test_words_of_a_tile(seed, address):
    example, head, first_row, first_key = address
    out, by_key = torch.full((2, 8, 32), -1, device=DEVICE)
    write_words[(1,)](out, by_key, seed, example, head, first_row, first_key, ROWS=8, KEYS=32)
    rows = first_row + torch.arange(8)
    expected = cell_words_from(seed, example, head, rows, first_key)
    assert torch.equal(out.cpu(), expected) and torch.equal(by_key.cpu(), expected)


def cell_words_from(seed, example, head, rows, first_key):
    """The oracle's words of 32 keys from a multiple of four on, without drawing all keys before."""
    from sbmt.counter_rng import random_blocks

    blocks = first_key // 4 + torch.arange(8)
    one = torch.ones(8, 1, dtype=torch.int64)
    words = random_blocks(seed, Purpose.CELL, example * one, head * one, rows[:, None], blocks).flatten(1)
    if first_key == 64:
        near = cell_words(seed, Purpose.CELL, example * one[:, 0], head * one[:, 0], rows, 96)
        assert torch.equal(near[:, 64:], words)
    return words
