"""Linformer is softmax attention over mixtures of keys."""

import torch

from sbmt.baselines import LinformerAttention
from tests.baselines.cases import check_against_twin, masked


def one_by_one(query, key, value, mask, projection):
    """The definition, for one example, head and query after the other; shorter inputs use the first columns."""
    out = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    for b, h, i in mask.any(-1).nonzero().tolist():
        real = mask[b, h, i].nonzero()[:, 0].tolist()
        mixed_keys = sum(torch.outer(projection[h, :, j], key[b, h, j]) for j in real)
        mixed_values = sum(torch.outer(projection[h, :, j], value[b, h, j]) for j in real)
        weights = (mixed_keys @ query[b, h, i] / query.shape[3] ** 0.5).exp()
        out[b, h, i] = weights @ mixed_values / weights.sum()
    return out


@masked
def test_it_is_the_definition(hides_keys, hides_queries):
    layer = LinformerAttention(4, 2, n_positions=9, n_projected=3).double()
    torch.nn.init.normal_(layer.projection)  # far from uniform, as after training
    check_against_twin(layer, lambda *case: one_by_one(*case, layer.projection), hides_keys, hides_queries)
