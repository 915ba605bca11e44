"""A whole layer learns on the kernels; test_tiles and test_rows hold them to the CPU's values and gradients."""

import pytest
import torch

from sbmt import MultiHeadAttention
from sbmt.block_model.density import density_penalty
from tests.kernels.gpu.device import DEVICE


@pytest.mark.parametrize("sampler", ["bernoulli", "exact"])
def test_a_layer_learns(sampler, monkeypatch):
    """In tiles, and along edges that the kernel drew."""
    monkeypatch.setattr("sbmt.kernels.draws.can_run_on", lambda device: False)  # or the CPU would draw
    layer = MultiHeadAttention(8, 2, attention="sbm", n_clusters=4, sampler=sampler, backend="gpu").to(DEVICE)
    tokens = torch.randn(2, 5, 8, device=DEVICE)
    values, attended = layer(tokens, tokens, tokens)
    (values.square().sum() + density_penalty([attended])).backward()
    assert values.shape == tokens.shape and (0 < attended.density).all() and (attended.density <= 1).all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    assert any((p.grad != 0).any() for name, p in layer.named_parameters() if "clusters" in name)
