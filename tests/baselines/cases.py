"""Inputs with masks for the tests of baselines, and the comparison with a slow reference."""

import pytest
import torch

from tests.gradients import assert_same_gradients
from tests.layers.inputs import tokens

LENGTHS = torch.tensor([[6], [0], [3]])

masked = pytest.mark.parametrize("hides_keys, hides_queries", [(k, q) for k in (True, False) for q in (True, False)])


def same_values_and_gradients(first, second, leaves, atol=1e-10):
    """Checks that two ways to compute the same values also have the same gradients."""
    torch.testing.assert_close(first, second, rtol=0, atol=atol)
    assert_same_gradients(first, second, leaves, rtol=0, atol=atol)


def check_against_twin(layer, twin, hides_keys, hides_queries, atol=1e-10):
    """Checks values and gradients against ``twin(query, key, value, mask)``, and edges and densities against a mask."""
    inputs = [tokens(3, 2, n, d, seed=n + d, dtype=torch.float64).requires_grad_() for n, d in ((5, 4), (6, 4), (6, 3))]
    query_mask, key_mask = (torch.arange(n).expand(3, n) < LENGTHS for n in (5, 6))  # the second example is all padding
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    mask = torch.ones(3, 2, 5, 6, dtype=torch.bool)
    mask &= query_mask[:, None, :, None] if hides_queries else mask
    mask &= key_mask[:, None, None, :] if hides_keys else mask
    out = layer(*inputs, **masks, return_edges=True)
    same_values_and_gradients(out.values, twin(*inputs, mask), [*inputs, *layer.parameters()], atol)
    assert torch.equal(out.edges.to_dense(), mask)
    has_pairs = mask.flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)
