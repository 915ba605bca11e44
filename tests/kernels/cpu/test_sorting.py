"""Sorting and merging: what np.unique does, in exactly the room that its result takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu import sorting


def sort(found, n_numbers, spare=0):
    """``sort_distinct`` with ``spare`` more room than needed; a guard behind it, and a look at the bitmap."""
    found = np.asarray(found, np.int32)
    needed = np.unique(found).size
    whole = np.full(needed + spare + 1, 12345, np.int32)
    bitmap = np.zeros((n_numbers + 63) // 64, np.uint64)
    before = found.copy()
    count = sorting.sort_distinct(found, bitmap, whole[:-1])
    assert whole[-1] == 12345 and not bitmap.any() and np.array_equal(found, before)
    return whole[:count]


def assert_sorted(found, n_numbers):
    expected = np.unique(np.asarray(found, np.int32))
    for spare in (0, 1, len(found), 3 * len(found)):
        assert np.array_equal(sort(found, n_numbers, spare), expected)


@given(st.data())
def test_a_few_or_many_numbers_with_repetitions(data):
    n_numbers = data.draw(st.integers(1, 300))
    assert_sorted(data.draw(st.lists(st.integers(0, n_numbers - 1), max_size=250)), n_numbers)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 95, 96, 97, 128, 129, 1000])
def test_all_numbers_in_any_order(n):
    numbers = np.random.default_rng(n).permutation(n)
    for found in (numbers, np.repeat(numbers, 2), numbers[::-1], np.arange(n), np.full(n, n - 1), numbers[: n // 2]):
        assert_sorted(found, n)


def test_nothing_gives_nothing():
    assert_sorted([], 1)


def test_large_numbers():
    assert_sorted([10_000_000, 0, 9_999_999, 64, 63, 10_000_000], 10_000_001)
    assert_sorted(np.random.default_rng(0).integers(0, 10_000_000, 5000), 10_000_000)
