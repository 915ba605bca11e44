"""Tests the power of the statistics: an incorrect sampler is rejected at the same level."""

import pytest
import torch

from sbmt.samplers import exact
from tests.samplers.laws import SHARE, law_p_values, stacked, uniform_model
from tests.statistics import Judge

RIGHT = exact._boost
WRONG = {
    "a boost one percent too small": ("_boost", lambda *given: 0.99 * RIGHT(*given)),
    "no candidate rejected": ("to_uniform", lambda words: torch.zeros(words.shape, dtype=torch.float64)),
}


@pytest.mark.parametrize("draw", ["torch by candidates"], indirect=True)
@pytest.mark.parametrize("what", WRONG)
def test_wrong_thinning(draw, what, monkeypatch):
    monkeypatch.setattr(exact, *WRONG[what])
    model = stacked(["zeros"]) if what == "no candidate rejected" else uniform_model(0.9, 30, 40)
    assert Judge(SHARE).rejects(law_p_values(draw.masks(model, 1200), draw.law(model)))
