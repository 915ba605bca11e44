"""The statistics see what they should: a sampler made wrong on purpose is rejected at the same level."""

import pytest
import torch

from sbmt.samplers import bernoulli, exact
from tests.samplers.laws import SHARE, law_p_values, random_model, stacked, uniform_model
from tests.statistics import Judge, joint_p_values, pair_p_values

judge = Judge(SHARE)


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
    assert judge.rejects(law_p_values(draw.masks(model, 1200), draw.law(model)))


@pytest.mark.parametrize("draw", ["bernoulli"], indirect=True)
@pytest.mark.parametrize("what", ["example", "head", "query"])
def test_shared_streams(draw, what, monkeypatch):
    def shared(rows, shape, first_example):
        example, head, query = right(rows, shape, first_example)
        return example // (2 if what == "example" else 1), head * (what != "head"), query * (what != "query")

    right = bernoulli.row_address
    monkeypatch.setattr(bernoulli, "row_address", shared)
    model = random_model(1, 2, 3, 4, 2)
    masks, probability = draw.masks(model, 4000), draw.law(model)
    assert not judge.rejects(law_p_values(masks, probability))  # each cell alone looks right
    if what == "example":
        assert judge.rejects(joint_p_values(masks[0::2], masks[1::2], probability, probability))
    else:
        assert judge.rejects(pair_p_values(masks.reshape(4000, -1), probability.ravel()))
