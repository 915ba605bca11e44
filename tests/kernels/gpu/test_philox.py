"""Words drawn in a kernel are the library's, address by address."""

import pytest
import torch
import triton.language as tl

from sbmt.counter_rng import Purpose, random_blocks
from sbmt.kernels.gpu.philox import cell_words as draw_words
from sbmt.kernels.gpu.toolchain import kernel
from tests.kernels.gpu.device import DEVICE


@kernel
def write_words(out, seed, example, head, first_row, first_key, ROWS: tl.constexpr, KEYS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, KEYS)
    words = draw_words(seed.to(tl.int64), example, head, first_row + rows, first_key, ROWS, KEYS)
    tl.store(out + rows[:, None] * KEYS + columns[None, :], words.to(tl.int64))


@pytest.mark.parametrize("seed", [0, -5, 0x123456789ABCDEF, -(1 << 63)])
@pytest.mark.parametrize("address", [(7, 3, 5, 64), ((1 << 31) - 8, 65535, (1 << 31) - 100, 1 << 20)])
def test_words_of_a_tile(seed, address):
    example, head, first_row, first_key = address
    out = torch.full((8, 32), -1, device=DEVICE)
    write_words[(1,)](out, seed, example, head, first_row, first_key, ROWS=8, KEYS=32)
    rows, blocks = first_row + torch.arange(8)[:, None], first_key // 4 + torch.arange(8)
    address = torch.tensor(example), torch.tensor(head), rows, blocks
    expected = random_blocks(seed, Purpose.CELL, *address).flatten(1)
    assert torch.equal(out.cpu(), expected)
