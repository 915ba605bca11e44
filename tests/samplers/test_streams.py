"""Compares weighted choices and Poisson counts with plain loops, exact shares and scipy."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sbmt.counter_rng import WORD
from sbmt.samplers.streams import choose_by_weight, cumulative_table, poisson_quantile


def plain_choice(weights, word):
    """Returns the first entry whose cumulative share exceeds word / 2³²."""
    return next(i for i in range(len(weights)) if sum(weights[: i + 1]) * WORD > word * sum(weights))


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any), min_size=1, max_size=4), st.data())
def test_a_word_chooses_the_entry_whose_interval_contains_it(tables, data):
    # Words at the boundary of an interval are left out, since the table is rounded to whole steps there.
    table = cumulative_table(torch.tensor(tables, dtype=torch.float64))
    which = data.draw(st.integers(0, len(tables) - 1))
    word = data.draw(st.integers(0, WORD - 1).filter(lambda w: (w * sum(tables[which])) % WORD > sum(tables[which])))
    found = choose_by_weight(table, 4, torch.tensor([which]), torch.tensor([word]))
    assert found.item() == plain_choice(tables[which], word)


def test_entries_of_weight_zero_are_never_chosen():
    table = cumulative_table(torch.tensor([[0.0, 1, 0, 1, 0], [0] * 5, [0, 0, 1, 0, 0]], dtype=torch.float64))
    words = torch.tensor([0, WORD // 2 - 1, WORD // 2, WORD - 1])
    for which, chosen in ((0, [1, 1, 3, 3]), (2, [2, 2, 2, 2])):
        assert choose_by_weight(table, 5, torch.full((4,), which), words).tolist() == chosen


@pytest.mark.parametrize("rate", [0.0, 1e-12, 0.01, 0.7, 3.0, 32.0, 1e3, 1e6])
def test_poisson_quantiles_equal_those_of_scipy(rate):
    u = torch.cat([torch.rand(2000, dtype=torch.float64), torch.tensor([2.0**-33, 1 - 2.0**-33], dtype=torch.float64)])
    found = poisson_quantile(u, torch.full_like(u, rate)).numpy()
    below, at = stats.poisson.cdf(found - 1, rate), stats.poisson.cdf(found, rate)
    tolerance = 1e-9  # error of the incomplete gamma functions, far below a step of 2⁻³³ except in the tails
    assert np.all(below <= u.numpy() * (1 + tolerance)) and np.all(at >= u.numpy() * (1 - tolerance))
    assert (found == 0).all() == (rate <= 1e-12)
