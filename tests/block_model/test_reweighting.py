"""Statistical tests of reweighting, and of the density of drawn edges."""

import pytest
import torch

from sbmt import BlockModel, EdgeList, sample_edges
from sbmt.block_model.fit import weigh_edges
from sbmt.block_model.model import SMALLEST_PROBABILITY, probability, reweighting_bias
from sbmt.graph.edges import reach_of
from sbmt.samplers import law_of

N, HEADS, DRAWS, DELTA = 12, 2, 6000, 0.05
DRAWN = [("poisson", "exact"), ("bilinear", "exact"), ("bilinear", "fastrg")]
LIMIT = 6.5  # bound on |z|: 8e-11 for each of about a hundred cells, so less than 1e-7 per test
BLOCK = torch.tensor([[0.9, 0.02, 0.3], [0.1, 0.4, 0.05], [0.0, 0.6, 0.2]], dtype=torch.float64)  # not symmetric


def repeated_model(link="poisson"):
    """Repeats one block model as many examples, whose memberships are differentiated separately."""
    generator = torch.Generator().manual_seed(5)
    memberships = (torch.rand(1, HEADS, N, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    query, key = (m.repeat(DRAWS, 1, 1, 1).requires_grad_() for m in memberships)
    return BlockModel(query, BLOCK.expand(HEADS, -1, -1) / 2, key, link=link), query


def largest_z(draws, expected):
    """Returns z-scores of the mean over draws (first dimension), cell by cell."""
    error = draws.std(0) / len(draws) ** 0.5
    return ((draws.mean(0) - expected).abs() / error.clamp(min=1e-12)).max()


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("link", "sampler"), DRAWN)
def test_the_estimated_density_and_its_gradient_are_unbiased(link, sampler, window):
    model, query = repeated_model(link)
    edges = sample_edges(model, sampler, exploration=DELTA, generator=torch.Generator().manual_seed(1))
    edges = edges if window is None else edges.with_window(window)
    rate = model.edge_rate(edges)
    _, estimate = weigh_edges(edges, rate, link, law_of(sampler, link), DELTA, reach_of(window))
    (mine,) = torch.autograd.grad(estimate.sum(), query, retain_graph=True)
    exact = model.expected_density()
    (theirs,) = torch.autograd.grad(exact.sum(), query)
    assert largest_z(estimate.detach(), exact[0].detach()) < LIMIT
    assert largest_z(mine, theirs[0]) < LIMIT


@pytest.mark.parametrize(("link", "sampler"), DRAWN)
def test_numerator_and_denominator_of_reweighted_attention_are_unbiased(link, sampler):
    model, _ = repeated_model(link)
    edges = sample_edges(model, sampler, exploration=DELTA, generator=torch.Generator().manual_seed(2))
    assert model.expected_mask(DELTA).min() > SMALLEST_PROBABILITY
    generator = torch.Generator().manual_seed(3)
    scores, value = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((HEADS, N, N), (N, 3)))
    bias, _ = weigh_edges(edges, model.edge_rate(edges), link, law_of(sampler, link), DELTA, -1)
    assert not bias.requires_grad
    weight = torch.zeros(edges.cell_count, dtype=torch.float64)
    weight[edges.cells()] = (scores.flatten()[edges.cells() % (HEADS * N * N)] + bias).exp()
    weight = weight.view(edges.shape)
    assert largest_z(weight.sum(-1), scores.exp().sum(-1)) < LIMIT
    assert largest_z(weight @ value, scores.exp() @ value) < LIMIT


@pytest.mark.parametrize("window", [None, 0, 4])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
@pytest.mark.parametrize(("link", "sampler"), DRAWN)
def test_edges_are_weighed_by_the_probability_that_they_were_drawn_with(link, sampler, exploration, window):
    edges = EdgeList.from_dense(torch.rand(2, 3, N, N) < 0.5)
    rate = torch.rand(edges.n_edges, dtype=torch.float64) ** 6 * 5
    rate[::9], rate[1::9] = 1e-30, 0.0 if exploration else 1.0  # a rate of 0 draws no edge
    is_certain = None if window is None else edges.is_near(window)
    how = link, law_of(sampler, link), exploration, reach_of(window)
    bias, density = weigh_edges(edges, rate.requires_grad_(), *how)
    is_poisson = [law == "poisson" for law in (law_of(sampler, link), link)]
    drawn, own = (
        -torch.expm1(-r) if is_exponential else r.clamp(max=1)
        for r, is_exponential in zip((rate + exploration, rate), is_poisson, strict=True)
    )
    drawn = drawn.detach() if is_certain is None else drawn.detach().masked_fill(is_certain, 1.0)
    torch.testing.assert_close(bias, -drawn.clamp(min=SMALLEST_PROBABILITY).log(), rtol=1e-12, atol=1e-12)
    share = own / drawn
    expected = torch.stack([x.sum() for x in share.split(edges.degrees().view(6, N).sum(1).tolist())]).view(2, 3) / N**2
    torch.testing.assert_close(density, expected, rtol=1e-9, atol=1e-12)
    looped = weigh_edges(edges, rate.detach(), *how)  # by compiled loops, under the Poisson link
    torch.testing.assert_close(looped, (bias, expected.detach()), rtol=1e-9, atol=1e-12)
    slopes = (torch.autograd.grad(x.square().sum(), rate) for x in (density, expected))
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-12)
    assert not bias.requires_grad


@pytest.mark.parametrize("reweight", [True, 0.3])
@pytest.mark.parametrize("window", [None, 4])
def test_compiled_loops_weigh_causal_edges_beside_padding_like_plain_pytorch(window, reweight):
    real, causal = torch.arange(9) < torch.tensor([[9], [6]]), torch.ones(5, 9, dtype=torch.bool).tril(4)
    mask = (torch.rand(2, HEADS, 5, 9) < 0.5) & causal & real[:, None, None]
    edges = EdgeList.from_dense(mask, None, real, causal=True)
    rate = torch.rand(edges.n_edges, dtype=torch.float64)
    how = "poisson", "poisson", DELTA, reach_of(window), reweight
    looped, plain = weigh_edges(edges, rate, *how), weigh_edges(edges, rate.requires_grad_(), *how)
    torch.testing.assert_close(looped, tuple(x.detach() for x in plain), rtol=1e-12, atol=1e-12)


def test_padding_does_not_count_in_the_estimated_density():
    real = torch.arange(N) < torch.tensor([[N], [5], [0]])
    edges = EdgeList.from_dense((real[:, None] & real[:, :, None])[:, None], real, real)
    rate = torch.full((edges.n_edges,), 0.25)
    _, density = weigh_edges(edges, rate, "bilinear", "bilinear", 0.25, -1)  # drawn twice as often as weighted
    assert density[:, 0].tolist() == [0.5, 0.5, 0.0]


def test_rare_edges_are_weighted_as_if_they_were_less_rare():
    bias = reweighting_bias(probability("poisson", torch.tensor([0.0, 1e-9, 5.0])))
    assert bias[:2].tolist() == pytest.approx([-torch.tensor(SMALLEST_PROBABILITY).log().item()] * 2)
    assert bias[2] == pytest.approx(-torch.tensor(-5.0).exp().neg().log1p().item())
    drawn_with = torch.tensor([1e-9, 0.01, 0.5])
    assert reweighting_bias(drawn_with, 0.01).exp().tolist() == pytest.approx([100.0, 100.0, 2.0])
    assert reweighting_bias(drawn_with, False).tolist() == [0.0, 0.0, 0.0]
