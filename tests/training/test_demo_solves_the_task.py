"""The demo's claim, on every seed: SBM finds a dense mask and solves the task."""

from statistics import median

import pytest

from sbmt.training import SIZES, train


@pytest.mark.slow
def test_sbm_solves_repeated_tokens(record_property):
    tests = {seed: train(SIZES["demo"].override(seed=seed)).test for seed in range(5)}
    for seed, test in tests.items():
        record_property(f"seed {seed}", f"accuracy {test.accuracy:.4f}, density {test.density:.4f}")
        print(f"seed {seed}: accuracy {test.accuracy:.4f}, density {test.density:.4f}")
    assert median(test.accuracy for test in tests.values()) > 0.95
    assert median(test.density for test in tests.values()) > 0.75
