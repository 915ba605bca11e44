"""Inputs at the edges of what is allowed, a few of each kind. ``make faults`` runs many more."""

import pytest

from tests.faults.run_many import GROUPS, run_cases

N_CASES = {"command lines": 80}  # which take a third of a second each


@pytest.mark.bad_input  # some are refused, which is not the shape checker's business
@pytest.mark.parametrize("name", GROUPS)
def test_properties_hold_at_the_edges(name):
    n_cases = N_CASES.get(name, 200)
    found = run_cases(name, n_cases)
    is_about_mistakes = name in ("mistakes", "command lines")
    assert found.total() >= n_cases and found["answered"] > n_cases / (20 if is_about_mistakes else 4)
    assert not is_about_mistakes or found["refused"] > n_cases / 20
