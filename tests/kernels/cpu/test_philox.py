"""The compiled generator gives the words of its plain twin, and makes exponential variates of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.counter_rng import MAX_HEADS, WORD, Purpose, random_blocks
from sbmt.kernels.cpu import philox

SEEDS = [0, 1, -1, -(1 << 63), (1 << 63) - 1, 0x1234567890ABCDEF, -0x0FEDCBA987654321, 1 << 32, -(1 << 31)]
seeds = st.one_of(st.sampled_from(SEEDS), st.integers(-(1 << 63), (1 << 63) - 1))
words_of_32_bits = st.one_of(st.sampled_from([0, 1, (1 << 31) - 1, 1 << 31, WORD - 1]), st.integers(0, WORD - 1))


def address(example, head, row, blocks):
    """The arguments of the plain twin: one stream, some blocks."""
    return *(torch.tensor([x]) for x in (example, head, row)), torch.as_tensor(blocks)


def fill_words(n, seed, first_block, row, head_and_purpose, example):
    out = np.zeros((4, n), np.uint32)
    philox.fill_words(out, seed, first_block, row, head_and_purpose, example)
    return out


@given(seeds, words_of_32_bits, st.integers(0, MAX_HEADS - 1), words_of_32_bits, st.sampled_from(Purpose), st.data())
def test_words_equal_those_of_the_plain_twin(seed, row, head, example, purpose, data):
    n = data.draw(st.integers(1, 2 * philox.BATCH + 1))
    first = data.draw(st.one_of(st.just(0), st.just(WORD - n), st.integers(0, WORD - n)))
    twin = random_blocks(seed, purpose, *address(example, head, row, range(first, first + n)))
    found = fill_words(n, seed, first, row, head + purpose * MAX_HEADS, example)
    assert found.T.tolist() == twin.tolist()


def fill_columns(seed, blocks, rows, head_and_purpose, example, start=0):
    """Words of columns from ``start`` on; before them, and after the last, zeros stay."""
    n = start + len(blocks)
    out, address = np.zeros((4, n + 1), np.uint32), np.zeros((2, n + 1), np.uint32)
    address[:, start:n] = blocks, rows
    philox.fill_columns(out, start, n, seed, *address, head_and_purpose, example)
    return out


@given(seeds, st.lists(st.tuples(words_of_32_bits, words_of_32_bits), min_size=1, max_size=40), words_of_32_bits)
def test_columns_with_addresses_of_their_own(seed, addresses, example):
    found = fill_columns(seed, *zip(*addresses, strict=True), 3, example, start=2)
    assert not found[:, [0, 1, -1]].any()
    for column, (block, row) in enumerate(addresses, start=2):
        assert found[:, [column]].tolist() == fill_words(1, seed, block, row, 3, example).tolist()


@pytest.mark.parametrize(
    ("word", "block", "row"), [(0, 4069268299, 1), (1, 206120200, 1), (2, 2313320089, 1), (3, 2264539649, 2)]
)
def test_no_word_of_a_column_is_the_largest_there_is(word, block, row):
    example = 5
    words = fill_words(1, 7, block, row, 3, example)[:, 0].tolist()
    assert words[word] == WORD - 1  # one in 2³²
    words[word] -= 1
    assert fill_columns(7, [block], [row], 3, example)[:, 0].tolist() == words


@given(seeds, words_of_32_bits, st.integers(0, WORD - 100), words_of_32_bits)
def test_uniforms_are_53_bit_midpoints(seed, block, first_row, example):
    out = np.empty(5)
    philox.fill_uniforms(out, seed, block, first_row, 3, example)
    words = np.stack([fill_words(1, seed, block, first_row + i, 3, example)[:, 0] for i in range(5)]).astype(np.int64)
    assert out.tolist() == (((words[:, 0] >> 5 << 26) + (words[:, 1] >> 6) + 0.5) / 2.0**53).tolist()


@given(seeds, words_of_32_bits, words_of_32_bits, st.integers(0, WORD - 100))
def test_exponentials_are_minus_the_logarithm_of_53_bit_midpoints(seed, row, example, first):
    n = philox.BATCH
    out, scratch = np.empty(2 * n), np.empty((4, n), np.uint32)
    philox.fill_exponentials(out, scratch, seed, first, row, 3, example)
    words = fill_words(n, seed, first, row, 3, example).astype(np.int64)
    pairs = np.concatenate([words[:2], words[2:]], axis=1)  # two words to a variate
    bits = (pairs[0] >> 5 << 26) + (pairs[1] >> 6)
    np.testing.assert_allclose(out, -np.log((bits + 0.5) / 2.0**53), rtol=1e-15, atol=0)
    assert (out > 0).all()
