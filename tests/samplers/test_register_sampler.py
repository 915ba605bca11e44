"""Tests a user's sampler, which is accepted by name everywhere, and rejected if it breaks the rules."""

import pytest
import torch

from sbmt import SbmtError, edge_attention, sample_edges
from sbmt.block_model.model import probability, reweighting_bias
from sbmt.counter_rng import draw_seed, examples_from
from sbmt.layers.functional import sbm_attention
from sbmt.samplers import SAMPLERS, Sampler
from sbmt.samplers.bernoulli import sample_bernoulli
from tests.samplers.laws import random_model


@pytest.fixture(autouse=True)
def table():
    """Returns the table of samplers, which is restored in place after the test, since layers refer to it."""
    before = dict(SAMPLERS)
    yield
    SAMPLERS.clear()
    SAMPLERS.update(before)


@pytest.fixture
def calls():
    """Registers the dense sampler as ``mine``, and records the arguments of every call except the block model."""
    noted = []

    def draw(block_model, exploration, seed, first_example):
        assert not torch.is_grad_enabled()
        noted.append((exploration, seed, first_example))
        return sample_bernoulli(block_model, exploration, seed, first_example)

    SAMPLERS["mine"] = Sampler(draw)
    return noted


def test_it_is_called_by_name_with_the_given_arguments(calls):
    model = random_model()
    generators = [torch.Generator().manual_seed(3) for _ in range(3)]
    with examples_from(4):
        found, expected = (
            sample_edges(model, name, exploration=0.25, generator=generator, first_example=2)
            for name, generator in zip(("mine", "bernoulli"), generators, strict=False)
        )
    assert torch.equal(found.cells(), expected.cells())
    assert calls == [(0.25, draw_seed(generators[2]), 6)]


def test_drawn_edges_are_weighted_by_the_law_of_the_sampler():
    SAMPLERS.update(mine=Sampler(sample_bernoulli, law="poisson"), same=Sampler(sample_bernoulli))
    model, x = random_model(1, 2, 6, 6, scale=5.0), torch.randn(1, 2, 6, 4, dtype=torch.float64)

    for sampler, law in (("mine", "poisson"), ("same", "bilinear")):
        out = sbm_attention(x, x, x, model, sampler=sampler, reweight=True, return_edges=True)
        bias = reweighting_bias(probability(law, model.edge_rate(out.edges)))
        torch.testing.assert_close(out.values, edge_attention(x, x, x, out.edges, bias=bias, backend="dense"))


@pytest.mark.bad_input
def test_invalid_samplers_are_refused_at_once():
    SAMPLERS["mine"] = Sampler(lambda *given: sample_bernoulli(*given).to_dense())
    with pytest.raises(SbmtError, match="got Tensor"):
        sample_edges(random_model(), "mine")
