"""Fitting a block model by likelihood: its estimators as statistics, and its loss against a dense one."""

import pytest
import torch

import sbmt
from sbmt import AttentionOutput, BlockModel, EdgeList, SbmtError, sample_edges
from sbmt.block_model.density import estimated_density
from sbmt.block_model.fit import SMALLEST_PROBABILITY, fit_loss, reweighting_bias
from sbmt.block_model.link import LINKS
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


def test_rare_edges_are_weighted_as_if_they_were_less_rare():
    bias = reweighting_bias(LINKS["poisson"].probability(torch.tensor([0.0, 1e-9, 5.0])))
    assert bias[:2].tolist() == pytest.approx([-torch.tensor(SMALLEST_PROBABILITY).log().item()] * 2)
    assert bias[2] == pytest.approx(-torch.tensor(-5.0).exp().neg().log1p().item())


@pytest.mark.parametrize("exploration", [0.0, DELTA])
def test_the_loss_is_the_likelihood_of_c_times_the_attention(exploration):
    """Minimised over one common rate, it makes the rates of a query sum on average to c times its attention."""
    generator = torch.Generator().manual_seed(0)
    ones = torch.ones(2, 1, N, 1, dtype=torch.float64)
    mask = torch.arange(N)[None] < torch.tensor([[N], [7]])
    edges = EdgeList.from_dense((mask[:, :, None] & mask[:, None])[:, None], mask, mask)
    weights = torch.rand(edges.n_edges, generator=generator, dtype=torch.float64).requires_grad_()
    log_rate = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([log_rate], max_iter=100, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def loss():
        model = BlockModel(ones, log_rate.exp().expand(1, 1, 1), ones, mask, mask, "poisson")
        return fit_loss(model, edges, model.edge_rate(edges), weights, 4.0, exploration)

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
    wanted = 4.0 * float(weights.detach().sum()) / (N**2 + 7**2)
    assert float(log_rate.detach().exp()) == pytest.approx(wanted - exploration if exploration else wanted, rel=1e-4)
    assert weights.grad is None
    rate = float(log_rate.detach().exp())
    by_hand = (N**2 + 7**2) * rate - 4.0 * float(weights.detach().sum()) * torch.tensor(rate + exploration).log().item()
    assert float(loss().detach()) == pytest.approx(by_hand / (N + 7), rel=1e-5)


def test_a_rate_of_zero_gets_no_infinite_gradient():
    """As a warm-up may meet it, which attends to pairs that the block model rules out."""
    model = BlockModel(*(torch.ones(1, 1, 1, 1) for _ in range(3)), link="poisson")
    edges = EdgeList.from_dense(torch.ones(1, 1, 1, 1, dtype=torch.bool))
    rate = torch.zeros(1, requires_grad=True)
    loss = fit_loss(model, edges, rate, torch.ones(1), 16.0, 0.0)
    assert loss.isfinite() and torch.autograd.grad(loss, rate)[0].isfinite().all()


def test_no_real_query_is_no_loss():
    ones, nobody = torch.ones(1, 1, 3, 1, requires_grad=True), torch.zeros(1, 3, dtype=torch.bool)
    model = BlockModel(ones, torch.ones(1, 1, 1), ones, nobody, nobody, "poisson")
    edges = sample_edges(model)
    loss = fit_loss(model, edges, model.edge_rate(edges), torch.zeros(0), 4.0, 0.0)
    loss.backward()
    assert float(loss.detach()) == 0 and not ones.grad.any()


def test_losses_of_layers_add_up():
    values, density = torch.zeros(1, 1, 2, 3), torch.zeros(1, 1)
    outputs = [AttentionOutput(values, density, density, auxiliary_loss=torch.tensor(x)) for x in (1.0, 2.5)]
    assert float(sbmt.auxiliary_loss(outputs)) == 3.5 and float(sbmt.auxiliary_loss(outputs[0])) == 1.0
    assert float(sbmt.auxiliary_loss([AttentionOutput(values, density, density)])) == 0.0


@pytest.mark.bad_input
@pytest.mark.parametrize("outputs", [None, [], torch.zeros(2), [torch.zeros(2)]])
def test_a_loss_without_layers_is_refused(outputs):
    with pytest.raises(SbmtError, match="the output of a model"):
        sbmt.auxiliary_loss(outputs)
