"""Poisson numbers by inversion, against SciPy's, on the same random numbers and as a law."""

import numpy as np
import pytest
from scipy import stats

from sbmt.kernels.cpu.draws.counts import _add_numbers, count_points
from tests.statistics import binomial_p_values, pair_p_values

MEANS = (0.0, 1e-9, 1e-3, 0.5, 3.0, 17.0, 63.0, 64.0)
LARGE = (64.5, 128.0, 700.0)  # sums of several numbers


def counts(expected, seed=0, first_row=0, head=0, example=0):
    """One number for each row, and nothing written behind them."""
    expected = np.asarray(expected, np.float64)
    out = np.full(expected.size + 1, -7)
    count_points(expected, out, seed, first_row, head, example)
    assert out[-1] == -7
    return out[:-1]


@pytest.mark.parametrize("mean", MEANS)
def test_each_is_the_quantile_of_its_uniform(mean):
    """Into the tails, as far as sums of probabilities tell numbers apart."""
    tail = 0.5 ** np.arange(1, 54)
    u = np.concatenate([np.random.default_rng(0).random(10_000), tail, 1 - tail])
    out = np.zeros(u.size, np.int64)
    _add_numbers(np.full(u.size, mean), u.copy(), out)
    low, high = (stats.poisson.ppf(np.clip(u + d, 0.0, 1 - 2.0**-53), mean) for d in (-1e-14, 1e-14))
    assert (out >= low).all() and (out <= high).all()


@pytest.mark.statistical(share=0.001)
def test_their_law_is_poisson_s(judge):
    p_values = []
    for seed, mean in enumerate(MEANS[1:] + LARGE):
        found = counts(np.full(1 << 16, mean), seed)
        cells = np.arange(found.max() + 1)
        p_values.append(binomial_p_values(np.bincount(found), found.size, stats.poisson.pmf(cells, mean)))
    judge(*p_values)


@pytest.mark.statistical(share=0.001)
def test_rows_heads_examples_and_seeds_have_numbers_of_their_own(judge):
    """Whether there are many is independent of all others; there are two numbers in each sum."""
    means, many = np.full(1 << 14, 100.0), 100
    names = ("head", "head", "example", "example", "seed", "seed", "first_row")
    others = [{name: number} for name, number in zip(names, (1, 2, 1, 2, 1, 1 << 32, 1), strict=True)]
    streams = np.stack([counts(means), *(counts(means, **other) for other in others)], 1)
    judge(pair_p_values(streams > many, np.full(streams.shape[1], stats.poisson.sf(many, 100.0))))


def test_a_row_s_number_is_its_own_whoever_is_drawn_with_it():
    expected = np.array([3.0, np.inf, 0.0, 500.0, 17.0])
    together = counts(expected, first_row=7)
    assert together.tolist() == [counts([x], first_row=7 + i)[0] for i, x in enumerate(expected)]
    assert together[1] == together[2] == 0 < together[3]
    assert counts([], first_row=7).size == 0
