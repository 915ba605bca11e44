"""Fitting a block model by likelihood: its loss against a dense one."""

import pytest
import torch

import sbmt
from sbmt import AttentionOutput, BlockModel, EdgeList, SbmtError, sample_edges
from sbmt.block_model import fit
from sbmt.block_model.fit import fit_loss
from sbmt.graph.patterns import is_in_window

N, DELTA = 12, 0.05


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("window", [None, 0, 4])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
def test_kernels_compute_the_same_loss_and_gradient(exploration, window, dtype, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    ones, n = torch.ones(2, 3, N, 1, dtype=dtype), (2, 3, N, N)
    model = BlockModel(ones, torch.ones(1, 1, 1, dtype=dtype), ones, link="poisson")
    edges = EdgeList.from_dense(torch.rand(n, generator=generator) < 0.5)
    rate, weights = (torch.rand(edges.n_edges, generator=generator, dtype=dtype) for _ in range(2))
    rate[::5], weights[::7] = 0.0, 0.0
    found = []
    for has_kernels in (True, False):
        if not has_kernels:
            monkeypatch.setattr(fit, "can_run_on", lambda device: False)
        loss = fit.fit_loss(model, edges, rate.requires_grad_(), weights, 16.0, exploration, window)
        found.append((loss.detach(), *torch.autograd.grad(loss, rate)))
    for mine, theirs in zip(*found, strict=True):
        assert theirs.abs().max() > 0.01
        torch.testing.assert_close(mine, theirs, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=0)
    is_near = is_in_window(edges, 0 if window is None else window)
    assert not found[0][1][is_near].any() if window is not None else found[0][1][is_near].any()


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
