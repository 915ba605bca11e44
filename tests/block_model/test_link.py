"""Links: the two of the library, and a third one that is nothing but a class."""

from dataclasses import dataclass

import pytest
import torch

from sbmt import BlockModel, SBMAttention, SbmtError, edge_attention, sample_edges
from sbmt.block_model.link import LINKS, Bilinear, Link, Poisson, find_link
from sbmt.samplers import law_of

RATES = torch.tensor([0.0, 1e-3, 0.4, 1.0, 7.0], dtype=torch.float64, requires_grad=True)


@dataclass(frozen=True)
class Odds(Link):
    """p = r / (1 + r): rates are odds."""

    name = "odds"

    def probability(self, rate):
        return rate / (1 + rate)

    def candidate_factor(self, bound):
        return torch.ones_like(bound)  # 1 − e^{−x} ≥ x / (1 + x)


@dataclass(frozen=True)
class Silent(Link):
    """The same, without a word on candidates."""

    name = "silent"

    def probability(self, rate):
        return rate / (1 + rate)


@pytest.fixture(params=[1.0, 0.05], ids=["dense", "sparse"])
def odds_model(request, make_block_model):
    return make_block_model(
        batch=400, heads=2, n_queries=6, n_keys=70, link=Odds(), scale=request.param, is_padded=True
    )


def odds(model, exploration=0.0):
    """The probability of every pair, written out."""
    rate = torch.einsum("bhik,hkl,bhjl->bhij", model.query_membership, model.block_matrix, model.key_membership)
    real = torch.ones(model.shape, dtype=torch.bool)
    if model.query_mask is not None:
        real &= model.query_mask[:, None, :, None] & model.key_mask[:, None, None, :]
    rate = (rate + exploration) * real
    return rate / (1 + rate), real


@pytest.mark.parametrize("name", LINKS)
def test_names_find_their_links(name):
    assert find_link(name).name == name and find_link(LINKS[name]) is LINKS[name]
    assert name in repr(BlockModel(*(torch.ones(1, 1, 1, 1), torch.ones(1, 1, 1), torch.ones(1, 1, 1, 1)), link=name))


def test_probabilities_and_the_gradients_that_a_gate_passes_on():
    assert Bilinear().probability(RATES).tolist() == [0.0, 1e-3, 0.4, 1.0, 1.0]
    torch.testing.assert_close(Poisson().probability(RATES), 1 - (-RATES).exp(), rtol=1e-12, atol=1e-12)
    for link, slope in ((Bilinear(), torch.ones(5).double()), (Poisson(), (-RATES).exp()), (Odds(), (1 + RATES) ** -2)):
        (found,) = torch.autograd.grad(link.unclamped(RATES).sum(), RATES)
        torch.testing.assert_close(found, slope)


@pytest.mark.parametrize("link", [Bilinear(), Poisson(), Odds()], ids=lambda link: link.name)
def test_there_are_candidates_enough(link):
    bound = torch.logspace(-9, 2, 200, dtype=torch.float64)
    factor = link.candidate_factor(bound)
    for share in (1.0, 0.5, 1e-3):
        rate = share * bound
        assert bool((-torch.expm1(-factor * rate) >= link.probability(rate) - 2e-14).all())


def test_a_third_link_has_its_own_expectations(odds_model):
    for exploration in (0.0, 0.1):
        p, real = odds(odds_model, exploration)
        torch.testing.assert_close(odds_model.expected_mask(exploration), p)
        mean = p.sum((2, 3)) / real.sum((2, 3)).clamp(min=1)
        torch.testing.assert_close(odds_model.expected_density(exploration), mean)


@pytest.mark.parametrize("sampler, exploration", [("bernoulli", 0.0), ("exact", 0.0), ("exact", 0.1)])
def test_a_third_link_is_sampled(odds_model, sampler, exploration):
    """800 masks of 420 cells: the sum of all edges, and each cell over all masks, within 5 standard deviations."""
    p, _ = odds(odds_model, exploration)
    drawn = sample_edges(
        odds_model, sampler, exploration=exploration, generator=torch.Generator().manual_seed(1)
    ).to_dense()
    for over in ((0, 1, 2, 3), (0, 1)):
        z = (drawn.double() - p).sum(over) / (p * (1 - p)).sum(over).clamp(min=1e-12).sqrt()
        assert float(z.abs().max()) < 5


def test_the_exact_sampler_says_what_it_lacks(make_block_model):
    with pytest.raises(SbmtError, match="candidate_factor for sampler='exact', got link 'silent'.*bernoulli"):
        sample_edges(make_block_model(link=Silent()))
    assert sample_edges(make_block_model(link=Silent()), "bernoulli").n_edges


def test_a_third_link_has_a_gate(make_block_model):
    model = make_block_model(link=Odds())
    leaves = [t.detach().requires_grad_() for t in (model.query_membership, model.block_matrix, model.key_membership)]
    model = BlockModel(*leaves, link=Odds())
    edges = sample_edges(model, "bernoulli", generator=torch.Generator().manual_seed(0))
    gate = model.gate(edges)
    assert gate.detach().eq(1).all()
    slope = torch.rand(edges.n_edges)
    found = torch.autograd.grad((gate * slope).sum(), leaves)
    dense = odds(model)[0].flatten()[edges.cells()]
    for mine, theirs in zip(found, torch.autograd.grad((dense * slope).sum(), leaves), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
def test_a_layer_takes_a_third_link(sampler):
    torch.manual_seed(0)
    layer, x = SBMAttention(8, 2, 4, link=Odds(), sampler=sampler, exploration=0.0), torch.randn(3, 2, 9, 8)
    out = layer(x, x, x, generator=torch.Generator().manual_seed(1), return_edges=True)
    torch.testing.assert_close(out.values, edge_attention(x, x, x, out.edges))
    rate = layer.block_model(x, x).edge_rate(out.edges)  # the density is an estimate: there is no closed form
    share = Odds().probability(rate) / law_of(sampler, Odds()).probability(rate)
    graph = out.edges.rows() // 9
    estimate = torch.zeros(6).index_add(0, graph, share).view(3, 2) / 81
    torch.testing.assert_close(out.expected_density, estimate)
    out.values.square().sum().backward()
    assert float(layer.clusters.grad.abs().sum()) > 0 and "link='odds'" in repr(layer)
    SBMAttention(8, 2, 4, link=Odds(), membership="softmax")(x, x, x)
