"""A random mask has the density asked for, knows nothing, and is fresh in every call."""

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.baselines import RandomMaskAttention
from tests.layers.inputs import seeded, tokens
from tests.statistics import binomial_p_values


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("mask_density", [0.02, 0.25, 0.9])
@pytest.mark.parametrize("is_training", [True, False])
def test_the_density_is_the_one_asked_for(is_training, mask_density, judge):
    layer, x = RandomMaskAttention(4, 3, mask_density=mask_density).train(is_training), tokens(4, 3, 64)
    out = layer(x, x, x, generator=seeded(), return_edges=True)
    judge(binomial_p_values(out.edges.n_edges, 4 * 3 * 64 * 64, mask_density))
    torch.testing.assert_close(out.density, out.edges.density())
    torch.testing.assert_close(out.expected_density, torch.full((4, 3), mask_density))


def test_values_are_attention_along_its_edges():
    x, layer = tokens(), RandomMaskAttention(4, 3)
    mask = torch.arange(8).expand(2, 8) < torch.tensor([[8], [5]])
    out = layer(x, x, x, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    torch.testing.assert_close(out.values, edge_attention(x, x, x, out.edges))
    assert not (out.edges.to_dense() & ~(mask[:, None, :, None] & mask[:, None, None, :])).any()


@pytest.mark.parametrize("mask_density, expected", [(0.0, 0.0), (1.0, 1.0)])
def test_certain_masks(mask_density, expected):
    x = tokens()
    out = RandomMaskAttention(4, 3, mask_density=mask_density)(x, x, x)
    assert (out.density == expected).all() and (out.expected_density == expected).all()


def test_the_mask_is_fresh_and_ignores_the_input():
    layer, x, other = RandomMaskAttention(4, 3), tokens(n=16), tokens(n=16, seed=1)
    masks = [
        layer(t, t, t, generator=seeded(seed), return_edges=True).edges.to_dense()
        for t, seed in ((x, 0), (other, 0), (x, 1))
    ]
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert list(layer.parameters()) == []


def test_dropout_acts_in_training_only():
    x, layer = tokens(n=32), RandomMaskAttention(4, 3, dropout=0.5)
    values = [layer(x, x, x, generator=seeded()).values, layer.eval()(x, x, x, generator=seeded()).values]
    plain = RandomMaskAttention(4, 3)(x, x, x, generator=seeded()).values
    assert not torch.allclose(values[0], plain) and torch.equal(values[1], plain)
