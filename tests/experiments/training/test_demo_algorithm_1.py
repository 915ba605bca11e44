"""Algorithm 1 cannot draw an edge with more than 63.2 %, and the task shows it."""

from math import exp

import pytest

from sbmt.experiments.training import SIZES, train


@pytest.mark.slow
def test_algorithm_1_stops_below_its_cap_and_fails():
    run = train(SIZES["demo"].override(preset="faithful"))
    assert max(run.history["density"]) < 0.65
    assert run.test.density < 1 - exp(-1) + 0.005  # 4.2 million pairs: five standard deviations are 0.0012
    assert run.test.accuracy < 0.85
