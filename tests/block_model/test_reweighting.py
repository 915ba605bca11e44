"""What reweighting and the density make of drawn edges, as statistics."""

import pytest
import torch

from sbmt import BlockModel, EdgeList, sample_edges
from sbmt.block_model import reweighting
from sbmt.block_model.density import estimated_density
from sbmt.block_model.link import LINKS
from sbmt.block_model.reweighting import SMALLEST_PROBABILITY, reweighting_bias, weigh_edges
from sbmt.graph.csr import near_edges
from sbmt.graph.patterns import is_in_window
from sbmt.samplers import law_of

N, HEADS, DRAWS, DELTA = 12, 2, 6000, 0.05
DRAWN = [("poisson", "exact"), ("bilinear", "exact"), ("bilinear", "fastrg")]
LIMIT = 6.5  # of |z|: 8e-11 for each of some hundred cells, so less than 1e-7 for each test
BLOCK = torch.tensor([[0.9, 0.02, 0.3], [0.1, 0.4, 0.05], [0.0, 0.6, 0.2]], dtype=torch.float64)  # not symmetric


def repeated_model(link="poisson"):
    """One block model as many examples, each with memberships of its own to differentiate by."""
    generator = torch.Generator().manual_seed(5)
    memberships = (torch.rand(1, HEADS, N, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    query, key = (m.repeat(DRAWS, 1, 1, 1).requires_grad_() for m in memberships)
    return BlockModel(query, BLOCK.expand(HEADS, -1, -1) / 2, key, link=link), query


def largest_z(draws, expected):
    """Of the mean over draws (first dimension), cell by cell."""
    error = draws.std(0) / len(draws) ** 0.5
    return ((draws.mean(0) - expected).abs() / error.clamp(min=1e-12)).max()


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize(("link", "sampler"), DRAWN)
def test_the_estimated_density_and_its_gradient_are_unbiased(link, sampler, window):
    model, query = repeated_model(link)
    edges = sample_edges(model, sampler, exploration=DELTA, generator=torch.Generator().manual_seed(1))
    edges = edges if window is None else edges.with_window(window)
    rate = model.edge_rate(edges)
    drawn_with = law_of(sampler, model.link).probability(rate + DELTA)
    if window is not None:
        drawn_with = drawn_with.masked_fill(is_in_window(edges, window), 1.0)
    estimate = estimated_density(edges, model.link.probability(rate), drawn_with)
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
    bias = reweighting_bias(law_of(sampler, model.link).probability(model.edge_rate(edges) + DELTA))
    assert not bias.requires_grad
    weight = torch.zeros(edges.cell_count, dtype=torch.float64)
    weight[edges.cells()] = (scores.flatten()[edges.cells() % (HEADS * N * N)] + bias).exp()
    weight = weight.view(edges.shape)
    assert largest_z(weight.sum(-1), scores.exp().sum(-1)) < LIMIT
    assert largest_z(weight @ value, scores.exp() @ value) < LIMIT


@pytest.mark.parametrize("reach", [-1, 0, 2, N])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_kernels_weigh_edges_as_torch_does(dtype, exploration, reach, monkeypatch):
    generator = torch.Generator().manual_seed(4)
    edges = EdgeList.from_dense(torch.rand(2, 3, N, N, generator=generator) < 0.5)
    rate = torch.rand(edges.n_edges, generator=generator, dtype=dtype) ** 6 * 5
    rate[::9], rate[1::9] = 1e-30, 0.0
    found, link = [], LINKS["poisson"]
    for has_kernels in (True, False):
        if not has_kernels:
            monkeypatch.setattr(reweighting, "can_run_on", lambda device: False)
        found.append(reweighting.weigh_edges(edges, rate, link, link, exploration, reach))
    for mine, theirs in zip(*found, strict=True):
        assert mine.shape == theirs.shape
        tolerance = 2e-6 if dtype == torch.float32 else 1e-13
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
    assert found[0][0].count_nonzero() == (near_edges(edges.row_ptr, edges.keys, N, N, reach) == 0).sum()


@pytest.mark.parametrize("link", ["poisson", "bilinear"])
def test_the_density_of_weighed_edges_keeps_its_gradient(link):
    model, query = repeated_model(link)
    edges = sample_edges(model, exploration=DELTA, generator=torch.Generator().manual_seed(1))
    rate = model.edge_rate(edges)
    _, density = weigh_edges(edges, rate, model.link, model.link, DELTA, -1)
    expected = estimated_density(edges, model.link.probability(rate), model.link.probability(rate + DELTA))
    (mine,), (theirs,) = (torch.autograd.grad(x.sum(), query, retain_graph=True) for x in (density, expected))
    assert torch.equal(density, expected) and torch.equal(mine, theirs) and mine.any()


def test_rare_edges_are_weighted_as_if_they_were_less_rare():
    bias = reweighting_bias(LINKS["poisson"].probability(torch.tensor([0.0, 1e-9, 5.0])))
    assert bias[:2].tolist() == pytest.approx([-torch.tensor(SMALLEST_PROBABILITY).log().item()] * 2)
    assert bias[2] == pytest.approx(-torch.tensor(-5.0).exp().neg().log1p().item())
