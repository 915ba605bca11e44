"""Nothing to attend, where the conformance kit does not look."""

import pytest
import torch

from sbmt.layers import MultiHeadAttention
from tests.layers.inputs import seeded
from tests.testing.passing import PASSING


@pytest.mark.parametrize("name", PASSING)
def test_a_batch_of_padding_through_the_projections(name):
    settings = dict(PASSING[name])
    layer = MultiHeadAttention(8, 2, attention=settings.pop("name"), **settings)
    x = torch.randn(3, 5, 8, generator=seeded())
    output, attended = layer(x, x, x, torch.ones(3, 5, dtype=torch.bool))
    assert torch.equal(output, layer.out_proj.bias.expand(3, 5, 8))
    assert (attended.density == 0).all()
    output.square().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in layer.parameters())


@pytest.mark.parametrize("preset", ["recommended", "faithful", "fitted"])
@pytest.mark.parametrize("is_training", [True, False])
def test_an_empty_batch(is_training, preset):
    """As torch's own layer: nothing comes back, and gradients are zeros."""
    layer = MultiHeadAttention(8, 2, preset=preset, n_clusters=16).train(is_training)
    x = torch.zeros(0, 5, 8, requires_grad=True)
    output, attended = layer(x, x, x, torch.zeros(0, 5, dtype=torch.bool), return_edges=True)
    assert output.shape == x.shape and attended.values.shape == (0, 2, 5, 4) and attended.edges is None
    assert attended.density.shape == attended.expected_density.shape == (0, 2) and attended.auxiliary_loss == 0
    (output.sum() + attended.auxiliary_loss).backward()
    assert x.grad.shape == x.shape and not layer.in_proj_weight.grad.any()
    query, key = torch.zeros(0, 2, 3, 4), torch.zeros(0, 2, 6, 4)
    assert layer.attention(query, key, key).values.shape == query.shape
