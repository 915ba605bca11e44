"""What the tests of baselines share: masked inputs, and the comparison with a slow twin."""

import pytest
import torch

from tests.layers.inputs import seeded, tokens

LENGTHS = torch.tensor([[6], [0], [3]])

masked = pytest.mark.parametrize("hides_keys, hides_queries", [(k, q) for k in (True, False) for q in (True, False)])


def masked_case(n_queries=5, n_keys=6):
    """Queries, keys and values of width 4, 4 and 3 as float64 leaves, and masks; the second example is all padding."""
    query = tokens(3, 2, n_queries, 4, dtype=torch.float64)
    key, value = (tokens(3, 2, n_keys, d, seed=d, dtype=torch.float64) for d in (4, 3))
    query_mask, key_mask = (torch.arange(n).expand(3, n) < LENGTHS for n in (n_queries, n_keys))
    return [x.requires_grad_() for x in (query, key, value)], query_mask, key_mask


def same_values_and_gradients(first, second, leaves, atol=1e-10):
    """Two ways to compute the same values have the same gradients too."""
    torch.testing.assert_close(first, second, rtol=0, atol=atol)
    weight = torch.randn(first.shape, generator=seeded(9), dtype=first.dtype)
    gradients = [torch.autograd.grad((values * weight).sum(), leaves) for values in (first, second)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=atol)


def check_against_twin(layer, twin, hides_keys, hides_queries, atol=1e-10):
    """Values and gradients are those of ``twin(query, key, value, mask)``, edges and densities those of the mask."""
    inputs, query_mask, key_mask = masked_case()
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    mask = torch.ones(3, 2, 5, 6, dtype=torch.bool)
    mask &= query_mask[:, None, :, None] if hides_queries else mask
    mask &= key_mask[:, None, None, :] if hides_keys else mask
    out = layer(*inputs, **masks, return_edges=True)
    same_values_and_gradients(out.values, twin(*inputs, mask), [*inputs, *layer.parameters()], atol)
    assert torch.equal(out.edges.to_dense(), mask)
    has_pairs = mask.flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)
