"""The largest of many products, against NumPy's; test_crossed tests them where memberships are made of them."""

import numba
import numpy as np
import pytest
from numba import int64
from numba.core import config

from sbmt.kernels.cpu.vectors.flat import LANES
from sbmt.kernels.cpu.vectors.largest import COLUMNS, keep_largest

COUNT, PITCH = 5, 40


@numba.njit
def largest_products(active, matrix, first, n_rows, x, largest, which):
    for column in range(0, x.shape[1], COLUMNS):
        keep_largest(active, matrix, int64(first), int64(n_rows), x, int64(column), largest, which)


def given(n_active, dtype, seed=0):
    """Small whole numbers, so that products are exact and many are equal; two columns of vectors, two matrices."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, (2, COUNT, PITCH)).astype(dtype)
    x = rng.integers(-2, 3, (COUNT, 2 * LANES)).astype(dtype)
    return (0,) * n_active, matrix, x, np.empty((n_active, 2 * LANES), dtype), np.empty((n_active, 2 * LANES), np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_active", [1, 2, 5])
@pytest.mark.parametrize("n_rows", [5, 8, 13, 24])
def test_the_largest_are_found_in_descending_order(n_rows, n_active, dtype):
    active, matrix, x, largest, which = given(n_active, dtype)
    largest_products(active, matrix, COUNT * PITCH + 3, n_rows, x, largest, which)
    products = matrix[1, :, 3 : 3 + n_rows].T @ x
    np.testing.assert_array_equal(largest, -np.sort(-products, axis=0)[:n_active])
    np.testing.assert_array_equal(largest, np.take_along_axis(products, which, 0))
    assert (np.diff(np.sort(which, axis=0), axis=0) > 0).all()
    assert n_active == 1 or (np.diff(largest, axis=0) == 0).any()  # there are ties


def test_numbers_are_distinct_whatever_the_products():
    active, matrix, x, largest, which = given(3, np.float64)
    matrix[:] = np.nan
    largest_products(active, matrix, 0, 24, x, largest, which)
    np.testing.assert_array_equal(which, np.arange(3)[:, None].repeat(2 * LANES, 1))


def test_indices_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked = numba.njit(largest_products.py_func)
    active, matrix, x, largest, which = given(2, np.float32)
    checked(active, matrix, 0, PITCH, x, largest, which)
    for wrong in (
        (matrix, COUNT * PITCH + 1, PITCH, x, largest, which),
        (matrix, 0, PITCH, x, largest[:1], which),
        (matrix, 0, PITCH, x, largest, which[:1]),
    ):
        with pytest.raises(IndexError, match="end"):
            checked(active, *wrong)


def test_arrays_of_other_types_are_refused():
    active, matrix, x, largest, which = given(2, np.float32)
    for wrong in ((matrix.astype(float), largest, which), (matrix, largest, which.astype(np.int64))):
        with pytest.raises(numba.TypingError):
            largest_products(active, wrong[0], 0, PITCH, x, *wrong[1:])
