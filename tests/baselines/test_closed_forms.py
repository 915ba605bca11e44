"""Full, linear and Linformer's attention against slow twins that write their definition down."""

import torch

from sbmt.baselines import FullAttention, LinearAttention, LinformerAttention
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import check_against_twin, masked


@masked
def test_full_attention_is_the_row_loop(hides_keys, hides_queries):
    check_against_twin(FullAttention(4, 2), attend_row_by_row, hides_keys, hides_queries)


def quadratic_form(query, key, value, mask):
    """Weights φ(q)·φ(k) as a dense matrix; rows without a key are zero."""
    query_features, key_features = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    weights = query_features @ key_features.mT * mask
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


@masked
def test_linear_attention_equals_its_quadratic_form(hides_keys, hides_queries):
    check_against_twin(LinearAttention(4, 2), quadratic_form, hides_keys, hides_queries, 1e-12)


def over_mixtures(query, key, value, mask, projection):
    """Softmax over mixtures of keys, for one example, head and query after the other."""
    out = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    for b, h, i in mask.any(-1).nonzero().tolist():
        real = mask[b, h, i].nonzero()[:, 0].tolist()
        mixed_keys = sum(torch.outer(projection[h, :, j], key[b, h, j]) for j in real)
        mixed_values = sum(torch.outer(projection[h, :, j], value[b, h, j]) for j in real)
        weights = (mixed_keys @ query[b, h, i] / query.shape[3] ** 0.5).exp()
        out[b, h, i] = weights @ mixed_values / weights.sum()
    return out


@masked
def test_linformer_attends_to_mixtures_of_keys(hides_keys, hides_queries):
    """Shorter inputs use the projection's first columns."""
    layer = LinformerAttention(4, 2, n_positions=9, n_projected=3).double()
    torch.nn.init.normal_(layer.projection)  # far from uniform, as after training
    check_against_twin(layer, lambda *case: over_mixtures(*case, layer.projection), hides_keys, hides_queries)
