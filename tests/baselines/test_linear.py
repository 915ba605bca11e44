"""Linear attention is a quadratic form that it never writes down."""

import torch

from sbmt.baselines import LinearAttention
from tests.baselines.cases import check_against_twin, masked


def quadratic_form(query, key, value, mask):
    """Weights φ(q)·φ(k) as a dense matrix; rows without a key are zero."""
    query_features, key_features = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    weights = query_features @ key_features.mT * mask
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


@masked
def test_it_is_the_quadratic_form(hides_keys, hides_queries):
    check_against_twin(LinearAttention(4, 2), quadratic_form, hides_keys, hides_queries, 1e-12)
