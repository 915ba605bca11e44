"""A sampler of the user's: taken by its name, everywhere, and refused where it cannot be what it says."""

import pytest
import torch

from sbmt import SBMAttention, SbmtError, edge_attention, sample_edges
from sbmt.block_model.model import probability, reweighting_bias
from sbmt.counter_rng import draw_seed, examples_from
from sbmt.layers.functional import sbm_attention
from sbmt.samplers import SAMPLERS, Sampler
from sbmt.samplers.bernoulli import sample_bernoulli


@pytest.fixture(autouse=True)
def table():
    """The table of samplers, restored after the test, in place: layers hold the table itself."""
    before = dict(SAMPLERS)
    yield
    SAMPLERS.clear()
    SAMPLERS.update(before)


@pytest.fixture
def calls():
    """Names the dense sampler as ``mine``; what it is called with, call by call, but for the block model."""
    noted = []

    def draw(block_model, exploration, seed, first_example):
        assert not torch.is_grad_enabled()
        noted.append((exploration, seed, first_example))
        return sample_bernoulli(block_model, exploration, seed, first_example)

    SAMPLERS["mine"] = Sampler(draw)
    return noted


def test_it_is_called_by_name_with_the_given_arguments(calls, make_block_model):
    model = make_block_model(is_padded=True)
    generators = [torch.Generator().manual_seed(3) for _ in range(3)]
    with examples_from(4):
        found, expected = (
            sample_edges(model, name, exploration=0.25, generator=generator, first_example=2)
            for name, generator in zip(("mine", "bernoulli"), generators, strict=False)
        )
    assert torch.equal(found.cells(), expected.cells())
    assert calls == [(0.25, draw_seed(generators[2]), 6)]


def test_layers_train_with_it(calls):
    layer, x = SBMAttention(4, 2, 3, sampler="mine", exploration=0.1), torch.randn(1, 2, 5, 4)
    layer(x, x, x).values.square().sum().backward()
    layer.eval()(x, x, x)
    assert [exploration for exploration, _, _ in calls] == [0.1, 0.0]
    assert (layer.clusters.grad != 0).any() and "sampler='mine'" in repr(layer)
    with pytest.raises(SbmtError, match="sampler to be one of 'exact', 'fastrg', 'bernoulli'.*got 'later'"):
        SBMAttention(4, 2, 3, sampler="later")


def test_drawn_edges_are_weighted_by_the_law_of_the_sampler(make_block_model):
    SAMPLERS.update(mine=Sampler(sample_bernoulli, law="poisson"), same=Sampler(sample_bernoulli))
    model, x = make_block_model(1, 2, 6, 6, scale=0.9), torch.randn(1, 2, 6, 4, dtype=torch.float64)

    for sampler, law in (("mine", "poisson"), ("same", "bilinear")):
        out = sbm_attention(x, x, x, model, sampler=sampler, reweight=True, return_edges=True)
        bias = reweighting_bias(probability(law, model.edge_rate(out.edges)))
        torch.testing.assert_close(out.values, edge_attention(x, x, x, out.edges, bias=bias, backend="dense"))


@pytest.mark.bad_input
def test_invalid_samplers_are_refused_at_once(make_block_model):
    SAMPLERS["mine"] = Sampler(lambda *given: sample_bernoulli(*given).to_dense())
    with pytest.raises(SbmtError, match="got Tensor"):
        sample_edges(make_block_model(), "mine")
