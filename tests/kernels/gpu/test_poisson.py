"""The kernels for edges that were drawn by the Poisson law, against plain torch."""

import pytest
import torch

from sbmt import BlockModel, EdgeList
from sbmt.block_model import fit, reweighting
from sbmt.block_model.link import LINKS
from tests.kernels.gpu.device import DEVICE

N, DELTA = 40, 0.02


@pytest.fixture
def case(monkeypatch):
    """Edges, more of a row than are taken at a time, with rates from 0 on; and a way to switch to plain torch."""
    generator = torch.Generator().manual_seed(4)
    edges = EdgeList.from_dense(torch.rand(2, 3, N, N, generator=generator) < 0.9).to(DEVICE)
    rate = torch.rand(edges.n_edges, generator=generator, dtype=torch.float64) ** 6 * 5
    rate[::9], rate[1::9] = 1e-30, 0.0
    for module in (fit, reweighting):
        monkeypatch.setattr(module, "can_run_on", lambda device: False)

    def use_torch():
        for module in (fit, reweighting):
            monkeypatch.setattr(module, "has_gpu_kernels", lambda device: False)

    return edges, rate.to(DEVICE), use_torch


def assert_close(mine, theirs, dtype):
    tolerance = 5e-6 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("reach", [-1, 0, 2, N])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_edges_are_weighed_as_by_torch(dtype, exploration, reach, case):
    edges, rate, use_torch = case
    arguments = edges, rate.to(dtype), LINKS["poisson"], LINKS["poisson"], exploration, reach
    mine = reweighting.weigh_edges(*arguments)
    use_torch()
    for found, expected in zip(mine, reweighting.weigh_edges(*arguments), strict=True):
        assert found.dtype == expected.dtype == dtype and (reach == N or expected.abs().max() > 0.1)
        assert_close(found, expected, dtype)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_fit_and_its_gradients_are_those_of_torch(dtype, exploration, window, case):
    edges, rate, use_torch = case
    weights, found = torch.rand(rate.shape, dtype=dtype, device=DEVICE), []
    empty = torch.zeros(2, 3, N, 1, dtype=dtype, device=DEVICE)
    nobody = BlockModel(empty, torch.ones(3, 1, 1, dtype=dtype, device=DEVICE), empty)  # whose own rates are 0
    rate = rate.to(dtype) + (1e-3 if exploration == 0 else 0)  # the gradient of ln r is large next to 0
    for _ in range(2):
        leaf = rate.clone().requires_grad_()
        loss = fit.fit_loss(nobody, edges, leaf, weights, 3.0, exploration, window)
        found.append((loss, torch.autograd.grad(2 * loss, leaf)[0]))
        use_torch()
    for mine, theirs in zip(*found, strict=True):
        assert_close(mine, theirs, dtype)
