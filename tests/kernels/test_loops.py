"""Random words against their plain twin, and the shape of what is drawn; its law is that of tests/samplers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt import BlockModel, sample_edges
from sbmt.counter_rng import WORD, Purpose, random_blocks, to_uniform
from sbmt.kernels import operators

seeds = st.one_of(st.sampled_from([0, -1, -(1 << 63), (1 << 63) - 1, 1 << 32]), st.integers(-(1 << 63), (1 << 63) - 1))


@given(seeds, st.integers(0, 40), st.integers(0, (1 << 31) - 1), st.integers(0, 3), st.integers(0, WORD - 1))
def test_uniforms_equal_those_of_the_plain_twin(seed, row, key, head, example):
    """One for each edge, by its address; the only edge is one of the last head's."""
    row_ptr = torch.zeros(4 * 41 + 1, dtype=torch.int64)
    row_ptr[head * 41 + row + 1 :] = 1
    found = operators.cell_uniforms(row_ptr, torch.tensor([key]), seed, example, 41, 4)
    address = [torch.tensor([x]) for x in (example, head, row)]
    words = random_blocks(seed, Purpose.CELL, *address, torch.tensor([key // 4]))[0]
    assert found.item() == to_uniform(words[key % 4])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rates_over_all_magnitudes(dtype):
    """From 1e30 down to what a type can just hold: certain edges are there, all but impossible ones are not."""
    many = torch.ones(2, 1, 50, 1, dtype=dtype)
    for rate in (30.0, 1e30):
        block = torch.full((1, 1, 1), rate, dtype=dtype)
        assert sample_edges(BlockModel(many, block, many, link="poisson")).n_edges == 2 * 50 * 50
    size = torch.logspace(0, -30, 400, dtype=dtype)[None, None, :, None]
    ones = torch.ones(1, 1, 1, dtype=dtype)
    counts = sample_edges(BlockModel(ones[None].expand(1, 1, 200, 1), ones, size)).to_dense()[0, 0].sum(0)
    assert counts[0] == 200 and 0 < counts[20] < 60 and counts[150:].sum() == 0
