"""The layer is equations 5 to 8, and knows when it is training."""

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.layers import SBMAttention, sbm_attention
from tests.layers.inputs import seeded, tokens, without_edges
from tests.statistics import binomial_p_values


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_the_block_model_is_equations_5_to_7(link):
    torch.manual_seed(0)
    layer = SBMAttention(4, 3, 5, link=link).double()
    query, key = tokens(dtype=torch.float64), tokens(n=6, seed=1, dtype=torch.float64)
    key_mask = torch.tensor([[True] * 6, [True, False] * 3])
    model = layer.block_model(query, key, key_mask=key_mask)
    first, _, second = layer.node_mlp
    for b, h in [(0, 0), (1, 2)]:
        c = layer.clusters[h]
        rates = (c @ c.T).exp()
        block_matrix = rates / rates.sum() if link == "bilinear" else rates / 25
        torch.testing.assert_close(model.block_matrix[h], block_matrix, rtol=0, atol=1e-12)

        def membership(x, c=c):
            node = (x @ first.weight.T + first.bias).clamp(min=0) @ second.weight.T + second.bias
            return 1 / (1 + (-node @ c.T).exp())

        y, z = membership(query[b, h]), membership(key[b, h])
        torch.testing.assert_close(model.query_membership[b, h], y, rtol=0, atol=1e-12)
        p = y @ block_matrix @ z.T
        p = p if link == "bilinear" else 1 - (-p).exp()
        torch.testing.assert_close(model.expected_mask()[b, h], p * key_mask[b], rtol=0, atol=1e-12)


def test_eval_samples_without_exploration_and_dropout():
    layer = SBMAttention(4, 3, 5, exploration=0.3, dropout=0.5).eval()
    x = tokens(n=32)
    first, second = (layer(x, x, x, generator=seeded(s), return_edges=True) for s in (0, 1))
    assert not torch.equal(first.edges.to_dense(), second.edges.to_dense())
    torch.testing.assert_close(first.values, edge_attention(x, x, x, first.edges))
    silent = without_edges(layer)(x, x, x)
    assert (silent.density == 0).all() and (silent.values == 0).all()


@pytest.mark.statistical(share=0.001)
def test_training_explores(judge):
    layer = without_edges(SBMAttention(4, 3, 5, exploration=0.1))
    x = tokens(batch=8, n=64)
    out = layer(x, x, x, return_edges=True)
    judge(binomial_p_values(out.edges.n_edges, 8 * 3 * 64 * 64, 0.1))
    assert (out.expected_density < 1e-6).all()


def test_the_layer_is_the_function_with_its_block_model():
    layer = SBMAttention(4, 3, 5, dropout=0.2, window=4, exploration=0.05)
    x = tokens()
    mask = torch.arange(8).expand(2, 8) < torch.tensor([[8], [5]])
    ours = layer(x, x, x, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    settings = dict(dropout=0.2, window=4, exploration=0.05, generator=seeded(), return_edges=True)
    function = sbm_attention(x, x, x, layer.block_model(x, x, mask, mask), **settings)
    assert torch.equal(ours.values, function.values) and torch.equal(ours.density, function.density)
    assert torch.equal(ours.edges.keys, function.edges.keys)
