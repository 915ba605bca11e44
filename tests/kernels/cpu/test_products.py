"""The two inner loops against NumPy, for widths around the sixteen and thirty-two columns that go together."""

import numpy as np
import pytest

from sbmt.kernels.cpu.products import dots, weighted_sum

each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_count = pytest.mark.parametrize("count", [0, 1, 4, 31])
each_width = pytest.mark.parametrize("width", [1, 8, 16, 17, 32, 50, 64, 130])


def neighbours(count, width, dtype):
    """A matrix, and which of its rows from the fifth on are meant; what comes before and after them points at NaN."""
    rng = np.random.default_rng(count)
    matrix = rng.standard_normal((40, width)).astype(dtype)
    matrix[39] = np.nan
    index = np.full(count + 6, 34)
    index[3 : 3 + count] = rng.integers(0, 34, count)
    return matrix, index, matrix[5:][index[3 : 3 + count]]


@each_type
@each_count
@each_width
def test_products_and_weighted_sums_of_neighbours(count, width, dtype):
    matrix, index, rows = neighbours(count, width, dtype)
    vector, weights = (np.linspace(-1, 2, n).astype(dtype) for n in (width, count))
    products, sums = np.full(count + 1, 7, dtype), np.full(width, 7, dtype)
    dots(vector, matrix, 5, index, 3, 3 + count, products)
    weighted_sum(weights, matrix, 5, index, 3, 3 + count, sums)
    tolerance = dict(rtol=0, atol=200 * np.finfo(dtype).eps)
    np.testing.assert_allclose(products[:count], rows @ vector, **tolerance)
    np.testing.assert_allclose(sums, weights @ rows, **tolerance)
    assert products[count] == 7


@each_type
@pytest.mark.parametrize("width", [2, 18, 34])
def test_infinity_and_not_a_number_keep_their_meaning(width, dtype):
    matrix = np.zeros((4, width), dtype)
    matrix[:, 0], matrix[:, -1] = [np.inf, -np.inf, np.nan, 1], 1
    out, vector = np.empty(4, dtype), np.zeros(width, dtype)
    vector[[0, -1]] = 2, 1
    dots(vector, matrix, 0, np.arange(4), 0, 4, out)
    np.testing.assert_array_equal(out, [np.inf, -np.inf, np.nan, 3])
    vector[0] = 0
    dots(vector, matrix, 0, np.arange(4), 0, 4, out)
    np.testing.assert_array_equal(out, [np.nan, np.nan, np.nan, 1])
    sums = np.empty(width, dtype)
    for index, expected in (([0, 3], np.inf), ([0, 1], np.nan), ([2, 3], np.nan), ([3, 1], -np.inf)):
        weighted_sum(np.ones(2, dtype), matrix, 0, np.array(index), 0, 2, sums)
        np.testing.assert_array_equal(sums[[0, -1]], [expected, 2])
