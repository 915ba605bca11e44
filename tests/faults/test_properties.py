"""Inputs at the edges of what is allowed, a few of each kind. ``make faults`` runs many more."""

import pytest

from tests.faults.run_many import GROUPS, run_cases

N_CASES = 200


@pytest.mark.bad_input  # some are refused, which is not the shape checker's business
@pytest.mark.parametrize("name", GROUPS)
def test_properties_hold_at_the_edges(name):
    found = run_cases(name, N_CASES)
    is_about_mistakes = name in ("mistakes", "command lines")
    assert found.total() >= N_CASES and found["answered"] > N_CASES / (20 if is_about_mistakes else 4)
    assert not is_about_mistakes or found["refused"] > N_CASES / 20
