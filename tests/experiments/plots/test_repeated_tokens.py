import pytest
import torch

from sbmt.experiments.plots.repeated_tokens import see_mask
from sbmt.experiments.training.fit import fit
from tests.experiments.studies.tiny import TINY


@pytest.mark.parametrize("attention", ["sbm", "full", "random_mask"])
def test_the_drawn_mask_has_the_law_that_is_shown(attention):
    run = fit(TINY.override(attention=attention))
    run.model.train()
    seen = [see_mask(run.model, 3) for _ in range(2)]
    assert torch.equal(seen[0].drawn, seen[1].drawn)
    assert run.model.training
    assert seen[0].expected.shape == seen[0].drawn.shape == (8, 8)
    assert (seen[0].membership is None) == (attention != "sbm")
    expected = {"full": 1.0, "random_mask": 0.25}.get(attention)
    if expected is not None:
        assert torch.allclose(seen[0].expected, torch.tensor(expected))
