"""Bounds that never fail in exact arithmetic, and that are tight where all keys are alike up to a factor."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbmt.kernels.cpu.draws.bounds import Model, bound_keys, bound_rows, margin

each_type = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def model_of(query, key, exploration=0.0, is_poisson=False, is_real=None, n_real=None):
    """One graph, of whose keys the first are real."""
    is_real = np.ones(len(query), np.bool_) if is_real is None else is_real
    n_real = np.array([len(key) if n_real is None else n_real])
    real = np.arange(len(key), dtype=np.int32)[None]
    return Model(query, key, is_real[None], real, n_real, 1, exploration, is_poisson)


def compare(key):
    """``at_least`` and ``at_most`` of one graph's keys."""
    return bound_keys(model_of(key, key))[2:]


def bound(query, key, *arguments, **options):
    """``most``, ``upper`` and ``expected`` of one graph's rows."""
    model = model_of(query, key, *arguments, **options)
    return bound_rows(model, bound_keys(model))


def exact_product(query, key):
    """All rates as fractions."""
    query, key = ([[Fraction(float(x)) for x in row] for row in matrix] for matrix in (query, key))
    return [[sum(t * k for t, k in zip(row, other, strict=True)) for other in key] for row in query]


@st.composite
def factors(draw, dtype):
    """Rates T and memberships K, zeros, ones and small numbers included."""
    n_queries, n_keys, n_clusters = (draw(st.integers(1, n)) for n in (3, 6, 5))
    width = 32 if dtype == np.float32 else 64
    special = st.sampled_from([0.0, 1.0, 0.5, float(np.float32(1e-30)), float(np.finfo(dtype).eps)])
    number = st.one_of(special, st.floats(0, 1, width=width, allow_subnormal=False))
    rows = st.lists(number, min_size=n_clusters, max_size=n_clusters)
    query, key = (draw(st.lists(rows, min_size=n, max_size=n)) for n in (n_queries, n_keys))
    return np.array(query, dtype), np.array(key, dtype)


@each_type
@given(st.data())
def test_products_lie_between_their_bounds(dtype, data):
    query, key = data.draw(factors(dtype))
    at_least, at_most = compare(key)
    most, upper, _ = bound(query, key)
    for i, row in enumerate(exact_product(query, key)):
        for j, rate in enumerate(row):
            bounds = (Fraction(float(x)) * Fraction(float(most[i])) for x in (at_least[j], at_most[j]))
            low, high = bounds
            assert low <= rate <= high
            assert min(rate, 1) <= Fraction(float(upper[i])) <= 1


@each_type
@pytest.mark.parametrize("is_poisson", [False, True])
@given(st.data())
def test_no_probability_exceeds_its_row_s_bound_and_rates_add_up(dtype, is_poisson, data):
    query, key = data.draw(factors(dtype))
    exploration = data.draw(st.sampled_from([0.0, 1e-9, 0.01, 0.9]))
    _, upper, expected = bound(query, key, exploration, is_poisson)
    rate = query.astype(np.float64) @ key.T.astype(np.float64) + exploration
    probability = -np.expm1(-rate) if is_poisson else np.minimum(rate, 1)
    assert (probability * (1 - 1e-14) <= upper[:, None]).all() and upper.max() <= 1
    np.testing.assert_allclose(expected, rate.sum(1), rtol=1e-12, atol=1e-300)


@each_type
def test_bounds_are_tight_where_all_keys_are_proportional(dtype):
    rng = np.random.default_rng(0)
    query, profile, size = rng.random((4, 6)), rng.random(6), rng.random(50)
    key = (size[:, None] * profile).astype(dtype)
    at_least, at_most = compare(key)
    slack = 20 * margin(key)
    for bounds in (at_least, at_most):
        np.testing.assert_allclose(bounds, size / size.max(), rtol=slack)
    most, upper, _ = bound(query.astype(dtype), key)
    rate = query @ (size[:, None] * profile).T
    np.testing.assert_allclose(most, rate.max(1), rtol=slack)
    np.testing.assert_allclose(upper, np.minimum(rate.max(1), 1), rtol=slack)


def test_padding_counts_for_nothing():
    key = np.array([[0.5, 0.25], [0.25, 0.75], [1.0, 1.0]])
    for n_real, largest, total in ((2, [0.5, 0.75], [0.75, 1.0]), (0, [0, 0], [0, 0])):
        bounds = bound_keys(model_of(key, key, n_real=n_real))
        assert bounds.largest.tolist() == [largest] and bounds.total.tolist() == [total]
    found = bound(np.ones((3, 2)), key, 0.1, is_real=np.array([True, False, True]))
    assert all(x[1] == 0 < min(x[0], x[2]) for x in found)
