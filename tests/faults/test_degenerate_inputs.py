"""Inputs at the edges of what there is, a few of each kind. For more: ``make faults``."""

import pytest

from tests.faults.groups import GROUPS, run_cases

N_CASES = 200
SOUND = sorted(set(GROUPS) - {"mistakes", "command lines"})


@pytest.mark.bad_input  # some are refused; shape checks of what is fine have their own tests
@pytest.mark.parametrize("name", SOUND)
def test_properties_hold_at_the_edges(name):
    found = run_cases(name, N_CASES)
    assert found.total() >= N_CASES and found["answered"] > N_CASES / 4


@pytest.mark.bad_input
def test_mistakes_meet_one_error_and_no_other():
    found = run_cases("mistakes", N_CASES)
    assert found.total() >= N_CASES and min(found["answered"], found["refused"]) > N_CASES / 20
