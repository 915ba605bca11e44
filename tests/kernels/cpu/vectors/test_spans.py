"""Vector code for short spans, against NumPy on every span of an array, and numbers behind it that must not count."""

import numba
import numpy as np
import pytest
from numba.core import config

from sbmt.kernels.cpu.vectors.spans import SLACK, largest, spread, total

N = 70  # longer than two steps of the code


@numba.njit
def largest_of(x, start, stop):
    return largest(x, start, stop)


@numba.njit
def total_of(x, start, stop):
    return total(x, start, stop)


@numba.njit
def spread_over(number, out, start, stop):
    spread(number, out, start, stop)


def spans():
    return [(start, stop) for start in range(N + 1) for stop in range(start, N + 1)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_span(dtype):
    x = np.full(N + SLACK, np.nan, dtype)  # behind the array
    x[:N] = np.random.default_rng(0).integers(-1000, 0, N)  # sums of whole numbers are exact
    for start, stop in spans():
        assert largest_of(x, start, stop) == x[start:stop].max(initial=-np.inf)
        assert total_of(x, start, stop) == x[start:stop].sum()
        out = np.zeros(N + SLACK + 1, dtype)
        spread_over(dtype(7), out, start, stop)
        assert (out[start:stop] == 7).all() and not out[:start].any() and not out[stop + SLACK :].any()


def test_nan_and_infinity_of_a_span_are_kept():
    x = np.zeros(N + SLACK)
    x[3], x[40] = np.inf, np.nan
    assert np.isnan(total_of(x, 0, N)) and total_of(x, 0, 40) == largest_of(x, 0, 40) == np.inf
    assert largest_of(-x, 3, 4) == total_of(-x, 3, 4) == -np.inf


def test_indices_are_checked_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    x = np.ones(1 + SLACK)
    for function, given in ((largest_of, ()), (total_of, ()), (spread_over, (1.0,))):
        checked = numba.njit(function.py_func)
        checked(*given, x, 0, 1)
        for start in (1, 2**40):
            with pytest.raises(IndexError, match="end"):
                checked(*given, x, start, start + 1)


def test_other_arrays_are_refused():
    for x in (np.ones(2 * N)[::2], np.ones(N, np.int64)):
        for function, given in ((largest_of, ()), (total_of, ()), (spread_over, (x[0],))):
            with pytest.raises(numba.TypingError):
                function(*given, x, 0, 1)
