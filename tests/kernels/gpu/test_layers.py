"""Whole layers on the kernels are the layers on the CPU, from the same seed."""

import pytest
import torch

from sbmt import MultiHeadAttention, SBMAttention
from sbmt.block_model.density import density_penalty
from tests.kernels.gpu.device import DEVICE


def twins(build, **settings):
    """The same layer twice: along edges on the CPU, and on the kernels."""
    layers = []
    for backend, device in (("cpu", "cpu"), ("gpu", DEVICE)):
        torch.manual_seed(0)
        layers.append(build(backend=backend, **settings).to(device))
    return layers


def results(layer, tokens, mask, device):
    """Values, density and all gradients of a loss that both enter, on the CPU."""
    tokens, mask = tokens.to(device).requires_grad_(), mask.to(device)
    out = layer(tokens, tokens, tokens, query_mask=mask, key_mask=mask, generator=torch.Generator().manual_seed(3))
    weight = torch.linspace(-1, 1, out.values.numel(), device=device).view_as(out.values)
    loss = (out.values * weight).sum() + 5 * density_penalty([out])
    grads = torch.autograd.grad(loss, [tokens, *layer.parameters()])
    # Tiles visit all pairs anyway and know the exact density; the CPU estimates it under the Poisson link.
    exact = (
        layer.block_model(tokens, tokens, mask, mask).expected_density()
        if layer.backend == "cpu"
        else out.expected_density
    )
    return [x.detach().cpu() for x in (out.values, out.density, exact, *grads)]


@pytest.mark.parametrize("settings", [
    dict(self_loops=True, dropout=0.1),
    dict(window=4, gate_rule="weight"),
    dict(link="poisson", membership="softmax", exploration=0.05),
])  # fmt: skip
def test_a_layer_that_draws_in_tiles(settings):
    on_cpu, on_gpu = twins(SBMAttention, d_head=8, n_heads=2, n_clusters=5, sampler="bernoulli", **settings)
    tokens = torch.randn(2, 2, 21, 8)
    mask = torch.arange(21) < torch.tensor([[21], [13]])
    found, expected = results(on_gpu, tokens, mask, DEVICE), results(on_cpu, tokens, mask, "cpu")
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_layer_that_follows_edges_learns(monkeypatch):
    """Edges of the kernel are others than the CPU's, so that only the shape of things can be compared."""
    monkeypatch.setattr("sbmt.kernels.draws.can_run_on", lambda device: False)  # or the CPU would draw
    layer = MultiHeadAttention(8, 2, attention="sbm", n_clusters=4, backend="gpu").to(DEVICE)
    tokens = torch.randn(2, 5, 8, device=DEVICE)
    values, attended = layer(tokens, tokens, tokens)
    (values.square().sum() + density_penalty([attended])).backward()
    assert values.shape == tokens.shape and (0 < attended.density).all() and (attended.density <= 1).all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    assert any((p.grad != 0).any() for name, p in layer.named_parameters() if "clusters" in name)
