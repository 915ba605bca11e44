"""Searching a line of the cache at once, against loops over it."""

import numba
import numpy as np
import pytest
from numba import uint64
from numba.core import config

from sbmt.kernels.cpu.vectors.search import LINE, first_above


@numba.njit
def found(numbers, start, x):
    return first_above(numbers, uint64(start), x)


def by_a_loop(numbers, start, x):
    count = LINE // numbers.itemsize
    above = [i for i in range(count) if numbers[start + i] > x]
    return above[0] if above else count


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint64, np.float32, np.float64])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_the_first_of_a_line_that_is_above(dtype, is_sorted):
    count = LINE // np.dtype(dtype).itemsize
    numbers = np.random.default_rng(0).integers(0, np.iinfo(np.uint32).max, 3 * count).astype(dtype)  # of both signs
    numbers[5:9] = numbers[5]
    numbers = np.sort(numbers) if is_sorted else numbers
    asked = [*numbers, dtype(0), numbers.max()]
    cells = [(start, x) for start in range(2 * count + 1) for x in asked]
    expected = [by_a_loop(numbers, *cell) for cell in cells]
    assert [found(numbers, *cell) for cell in cells] == expected
    assert {0, count} < set(expected) and (not is_sorted or set(expected) == set(range(count + 1)))


def test_indices_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked = numba.njit(found.py_func)
    assert checked(np.zeros(9), 1, 0.0) == 8
    for start in (2, 2**40):
        with pytest.raises(IndexError, match="end"):
            checked(np.zeros(9), start, 0.0)


def test_an_array_of_another_type_is_refused():
    for numbers, x in ((np.zeros(16, np.float32), 0.0), (np.zeros(32)[::2], 0.0), ((0.0, 1.0), 0.0)):
        with pytest.raises(numba.TypingError):
            found(numbers, 0, x)


def test_words_are_compared_without_sign_and_nothing_is_above_infinity_or_nan():
    words = np.full(8, 2**63, np.uint64)
    assert found(words, 0, np.uint64(2**63 - 1)) == 0 and found(words, 0, np.uint64(2**63)) == 8
    numbers = np.full(8, np.inf)
    assert found(numbers, 0, 1.0) == 0 and found(numbers, 0, np.inf) == found(numbers, 0, np.nan) == 8
