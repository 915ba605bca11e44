"""Training tells of fitted masks that know nothing of the attention that they were fitted to."""

from importlib import import_module

import pytest

from sbmt.experiments.training.fit import fit
from tests.experiments.training.test_fitted import config

module = import_module("sbmt.experiments.training.fit")


def test_a_collapse_is_told(monkeypatch):
    fit(config())  # too short to be judged; any warning would be an error
    monkeypatch.setattr(module, "LEAST_STEPS", 1)
    with pytest.warns(UserWarning, match="sees .* of the attention with .* of all pairs"):
        fit(config())
    monkeypatch.setattr(module, "LEAST_GAIN", 0.5)
    fit(config())
