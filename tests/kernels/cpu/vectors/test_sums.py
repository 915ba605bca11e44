"""Sums of products by vector code: what it refuses, and that it can be made to check indices. Values: test_products."""

import numba
import numpy as np
import pytest
from numba import uint64
from numba.core import config

from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.cpu.vectors.sums import dot, dots_at, running_sums, sum_rows_at, transpose_block


@numba.njit
def product(x, at, y, count):
    return dot(x, uint64(at), y, uint64(0), uint64(count))


@numba.njit
def sums(weights, matrix, index, column, out):
    sum_rows_at(2, weights, 0, matrix, matrix.shape[1], 0, index, 0, index.size, column, out, column)


@numba.njit
def products(vector, matrix, index, column, out):
    dots_at(2, vector, matrix, matrix.shape[1], 0, index, 0, index.size, column, out)


@numba.njit
def sums_so_far(scale, most, x, at, y, count, out, place):
    running_sums(scale, most, x, uint64(at), y, uint64(0), uint64(count), out, uint64(place))


@numba.njit
def turned(x, start, out, place):
    transpose_block(x, start, x.shape[1], out, place, out.shape[1])


@pytest.mark.parametrize(
    ("dtype", "into"), [(t, t) for t in (np.int32, np.float32, np.float64)] + [(np.int32, np.int16)]
)
def test_a_transposed_block_is_written_and_nothing_else(dtype, into):
    x, out = np.arange(20 * 19).reshape(20, 19).astype(dtype), np.full((18, 21), -7, into)
    turned(x, 2 * 19 + 3, out, 21 + 4)
    expected = np.full_like(out, -7)
    expected[1:17, 4:20] = x[2:18, 3:19].T
    assert np.array_equal(out, expected)
    for other in (np.int64, np.float16):
        with pytest.raises(numba.TypingError):
            turned(x, 0, out.astype(other), 0)


@pytest.mark.parametrize("n_vectors", [0, 1, 3])
def test_running_sums_are_scaled_rounded_and_cut_off(n_vectors):
    count, generator = n_vectors * LANES, np.random.default_rng(n_vectors)
    x, y = (generator.integers(0, 9, count + 2).astype(float) for _ in range(2))
    out = np.full(count + 2, 7, np.uint32)
    sums_so_far(8388608.25, 2.0**32 - 1, x, 2, y, count, out, 1)
    expected = np.minimum(np.floor(np.cumsum(x[2:] * y[:count]) * 8388608.25 + 0.5), 2**32 - 1)
    assert np.array_equal(out[1:-1], expected) and (out[[0, -1]] == 7).all()
    assert (expected == 2**32 - 1).any() == (n_vectors == 3)


def test_indices_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked, x = numba.njit(product.py_func), np.ones(2 * LANES)
    assert checked(x, LANES, x, LANES) == LANES
    for given in ((x, 1, x, 2 * LANES), (x, LANES + 1, x, LANES), (x, 2**40, x, LANES), (x, 0, x[1:], 2 * LANES)):
        with pytest.raises(IndexError, match="end"):
            checked(*given)
    checked, index = numba.njit(sums.py_func), np.array([0, 2])
    given = np.ones(2), np.ones((3, 2 * LANES)), index, 0, np.empty(2 * LANES)
    checked(*given)
    np.testing.assert_array_equal(given[-1], 2)
    for i, wrong in enumerate((np.ones(1), np.ones((2, 2 * LANES)), np.array([0, 3]), 1, np.empty(LANES))):
        with pytest.raises(IndexError, match="end"):
            checked(*given[:i], wrong, *given[i + 1 :])


def test_products_with_rows_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked, index = numba.njit(products.py_func), np.array([0, 2, 1, 0, 2])
    given = np.ones(3 * LANES), np.ones((3, 3 * LANES)), index, LANES, np.arange(5.0)
    checked(*given)  # reads no edge after the last one, nor writes there
    np.testing.assert_array_equal(given[-1], np.arange(5.0) + 2 * LANES)
    for i, wrong in enumerate((np.ones(2 * LANES), np.ones((2, 3 * LANES)), index + 1, LANES + 1, np.ones(4))):
        with pytest.raises(IndexError, match="end"):
            checked(*given[:i], wrong, *given[i + 1 :])


def test_places_of_a_transposed_block_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked, x = numba.njit(turned.py_func), np.zeros((16, 17))
    checked(x, 1, np.empty((17, 16)), 16)
    for start, place in ((2, 16), (1, 17)):
        with pytest.raises(IndexError, match="end"):
            checked(x, start, np.empty((17, 16)), place)


def test_arrays_of_other_types_are_refused():
    x = np.ones(2 * LANES)
    for other in (x.astype(np.float32), np.ones(4 * LANES)[::2], x.astype(np.int64)):
        with pytest.raises(numba.TypingError):
            product(x, 0, other, LANES)
        with pytest.raises(numba.TypingError):
            sums(x, x.reshape(1, -1), np.zeros(1, np.int64), 0, other)
        with pytest.raises(numba.TypingError):
            products(x, x.reshape(1, -1), np.zeros(1, np.int64), 0, other)
