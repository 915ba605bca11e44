"""Linear attention is a quadratic form that it never writes down."""

import pytest
import torch

from sbmt.baselines import LinearAttention
from tests.baselines.cases import check_against_twin, masked, same_values_and_gradients
from tests.layers.inputs import tokens


def quadratic_form(query, key, value, mask):
    """Weights φ(q)·φ(k) as a dense matrix; rows without a key are zero."""
    query_features, key_features = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    weights = query_features @ key_features.mT * mask
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


@masked
def test_it_is_the_quadratic_form(hides_keys, hides_queries):
    check_against_twin(LinearAttention(4, 2), quadratic_form, hides_keys, hides_queries, 1e-12)


def test_the_branches_of_elu_meet_at_zero():
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    twin = (torch.nn.functional.elu(x) + 1).log()
    same_values_and_gradients(LinearAttention(3, 1).log_features(x), twin, [x])


@pytest.mark.parametrize("query_shift, key_shift", [(0, 0), (-500, -500), ("first", "last")])
def test_features_that_underflow_are_told_apart(query_shift, key_shift):
    """Below 0 features are exponentials, which float32 cannot hold from -104 on."""
    shifts = {"first": torch.tensor([0.0, -500, -500, -500]), "last": torch.tensor([-500, -500, -500, 0.0])}
    query = (-tokens(seed=1, dtype=torch.float64).abs() + shifts.get(query_shift, query_shift)).requires_grad_()
    key = (-tokens(seed=2, dtype=torch.float64).abs() + shifts.get(key_shift, key_shift)).requires_grad_()
    value = tokens(seed=3, dtype=torch.float64)
    scores = (query[:, :, :, None] + key[:, :, None]).logsumexp(-1)  # log φ(q)·φ(k): batch heads n_queries n_keys
    expected = scores.softmax(-1) @ value
    same_values_and_gradients(LinearAttention(4, 3)(query, key, value).values, expected, [query, key], 1e-11)
    in_float32 = LinearAttention(4, 3)(query.float(), key.float(), value.float()).values
    torch.testing.assert_close(in_float32.double(), expected, rtol=0, atol=1e-3)
