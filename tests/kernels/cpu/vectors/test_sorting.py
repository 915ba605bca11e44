"""Sorting a few numbers in registers: what np.unique does, and no number beyond its result is written."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core import config

from sbmt.kernels.cpu.vectors.sorting import sort_few

WIDTHS = (16, 32, 64, 128)


def sorter(width):
    return numba.njit(lambda numbers, start, count, out: sort_few(width, numbers, start, count, out))


SORTERS = {width: sorter(width) for width in WIDTHS}
UNTOUCHED = -7


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@given(data=st.data())
def test_sorted_and_distinct(width, dtype, data):
    most = data.draw(st.sampled_from([1, 3, 40, 2**31 - 2]))
    found = np.array(data.draw(st.lists(st.integers(0, most), max_size=width)), np.int32)
    rest = np.random.default_rng(found.size).integers(-5, 5, 3 + width).astype(np.int32)
    numbers, expected = np.concatenate([rest[:3], found, rest[3:]]), np.unique(found)
    out = np.full(expected.size + 20, UNTOUCHED, dtype)
    assert SORTERS[width](numbers, 3, found.size, out[: expected.size]) == expected.size
    assert np.array_equal(out[: expected.size], expected) and (out[expected.size :] == UNTOUCHED).all()


@pytest.mark.parametrize("width", WIDTHS)
def test_zeros_and_ones_in_any_order(width):
    """A network that sorts all sequences of zeros and ones sorts anything (zero-one principle): here are random ones.

    Equal numbers would be dropped, so each has a number below the ones' to tell it apart.
    """
    random = np.random.default_rng(width)
    for _ in range(300):
        numbers = random.permutation(width).astype(np.int32) + width * random.integers(0, 2, width).astype(np.int32)
        out = np.empty(width, np.int32)
        assert SORTERS[width](numbers, 0, width, out) == width and np.array_equal(out, np.sort(numbers))


def test_indices_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked, numbers = sorter(16), np.arange(17, dtype=np.int32)
    assert checked(numbers, 1, 16, np.empty(16, np.int32)) == 16
    for start, room in ((2, 16), (0, 15)):
        with pytest.raises(IndexError, match="end"):
            checked(numbers, start, 16, np.empty(room, np.int32))


def test_arrays_of_other_types_are_refused():
    numbers, out = np.zeros(99, np.int32), np.zeros(99, np.int64)
    for given_numbers, given_out in ((out, out), (numbers[::2], out), (numbers, out[::2]), (numbers, np.zeros(99))):
        with pytest.raises(numba.TypingError):
            SORTERS[16](given_numbers, 0, 3, given_out)
