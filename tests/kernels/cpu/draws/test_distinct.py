"""Sorting a row's keys: what np.unique does, in exactly the room that its result takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu.draws.distinct import FEW, new_bitmap, sort_distinct


def assert_sorted(found, n_numbers):
    """``sort_distinct`` with more or less room than needed; a guard behind it, and a look at what it leaves behind.

    Other numbers come before and after those to be sorted.
    """
    found = np.asarray(found, np.int32)
    expected, numbers = np.unique(found), np.concatenate([[-1, 0], found, np.arange(FEW)]).astype(np.int32)
    before, bitmap = numbers.copy(), new_bitmap(n_numbers)
    for spare in (0, 1, found.size, 3 * found.size):
        room = np.full(expected.size + spare + 1, 12345, np.int32)
        count = sort_distinct(numbers, 2, 2 + found.size, bitmap, room[:-1])
        assert np.array_equal(room[:count], expected) and np.array_equal(numbers, before)
        assert room[-1] == 12345 and not bitmap.any()


@given(st.data())
def test_a_few_or_many_numbers_with_repetitions(data):
    n_numbers = data.draw(st.integers(1, 300))
    assert_sorted(data.draw(st.lists(st.integers(0, n_numbers - 1), max_size=250)), n_numbers)


@pytest.mark.parametrize("n", [1, 16, 17, 32, 33, 64, 65, 128, 129, 1000])
def test_all_numbers_in_any_order(n):
    numbers = np.random.default_rng(n).permutation(n)
    for found in (np.repeat(numbers, 2), numbers[::-1], np.full(n, n - 1), numbers[: n // 2]):
        assert_sorted(found, n)
    assert_sorted(np.random.default_rng(0).integers(0, 10_000_000, 5000), 10_000_000)
