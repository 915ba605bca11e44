"""Full attention is the softmax over all real keys."""

import pytest
import torch

from sbmt.baselines import FullAttention
from tests.attention.row_loop import attend_row_by_row
from tests.layers.inputs import tokens

LENGTHS = torch.tensor([[6], [0], [3]])


def masked_case(n_queries=5, n_keys=6):
    query = tokens(3, 2, n_queries, 4, dtype=torch.float64)
    key, value = (tokens(3, 2, n_keys, d, seed=d, dtype=torch.float64) for d in (4, 3))
    query_mask = torch.arange(n_queries).expand(3, n_queries) < LENGTHS
    key_mask = torch.arange(n_keys).expand(3, n_keys) < LENGTHS
    return [t.requires_grad_() for t in (query, key, value)], query_mask, key_mask


@pytest.mark.parametrize("hides_queries", [True, False])
@pytest.mark.parametrize("hides_keys", [True, False])
def test_values_and_gradients_equal_the_row_loop(hides_keys, hides_queries):
    inputs, query_mask, key_mask = masked_case()
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    mask = torch.ones(3, 2, 5, 6, dtype=torch.bool)
    mask &= query_mask[:, None, :, None] if hides_queries else mask
    mask &= key_mask[:, None, None, :] if hides_keys else mask
    out = FullAttention(4, 2)(*inputs, **masks, return_edges=True)
    loop = attend_row_by_row(*inputs, mask)
    torch.testing.assert_close(out.values, loop, rtol=0, atol=1e-10)
    for mine, theirs in zip(
        torch.autograd.grad(out.values.square().sum(), inputs),
        torch.autograd.grad(loop.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    assert torch.equal(out.edges.to_dense(), mask)
    has_pairs = mask.flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)


def test_it_has_nothing_to_learn():
    assert list(FullAttention(4, 2).parameters()) == []


def test_dropout_acts_in_training_only():
    x, layer = tokens(n=32), FullAttention(4, 3, dropout=0.5)
    plain = FullAttention(4, 3)(x, x, x).values
    assert not torch.allclose(layer(x, x, x).values, plain)
    torch.testing.assert_close(layer.eval()(x, x, x).values, plain)
