"""Routing Transformer's attention is what its docstring says, token by token."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from sbmt.baselines.routing import RoutingAttention
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import same_values_and_gradients
from tests.layers.inputs import seeded, tokens

REAL = torch.rand(4, 12, generator=seeded(3)) < torch.tensor([[1.0], [0.6], [0.1], [0.0]])


def mask_token_by_token(cluster, real):
    """Whom every token attends to: the real others of its cluster, or itself."""
    mask = torch.zeros(*cluster.shape, cluster.shape[-1], dtype=torch.bool)
    for b, h, i in product(*map(range, cluster.shape)):
        if real[b, i]:
            others = [j for j in range(cluster.shape[2]) if real[b, j] and cluster[b, h, j] == cluster[b, h, i]]
            mask[b, h, i, [j for j in others if j != i] or [i]] = True
    return mask


@pytest.mark.parametrize("n_centroids", [1, 3, 30])
def test_it_is_the_loop_over_tokens(n_centroids):
    """Also where what stands at padding is not a number."""
    query = tokens(4, 2, 12, 4, dtype=torch.float64).requires_grad_()
    value = tokens(4, 2, 12, 3, seed=1, dtype=torch.float64).requires_grad_()
    dirty = [x.masked_fill(~REAL[:, None, :, None], torch.nan) for x in (query, value)]
    torch.manual_seed(0)
    layer = RoutingAttention(4, 2, n_centroids=n_centroids).double()
    out = layer(dirty[0], torch.rand(4, 2, 12, 4), dirty[1], query_mask=REAL, key_mask=REAL, return_edges=True)
    unit = query / query.norm(dim=-1, keepdim=True)
    centroids = layer.centroids / layer.centroids.norm(dim=-1, keepdim=True)
    cosines = unit.detach() @ centroids.mT
    mask = mask_token_by_token(cosines.argmax(-1), REAL)
    assert torch.equal(replace(out.edges, check=True).to_dense(), mask)
    same_values_and_gradients(out.values, attend_row_by_row(2 * query, unit, value, mask), [query, value])
    by_hand = mask.sum((2, 3)) / REAL.sum(1).square().clamp(min=1)[:, None]
    torch.testing.assert_close(out.density, by_hand)
    assert torch.equal(out.density, out.expected_density)
    distance = (1 - cosines.amax(-1)).transpose(1, 2)[REAL].mean()
    torch.testing.assert_close(out.auxiliary_loss, distance)


def test_centroids_learn_from_the_auxiliary_loss_alone():
    layer, x = RoutingAttention(4, 2, n_centroids=3), tokens().requires_grad_()[:, :2]
    out = layer(x, x, x)
    (by_task,) = torch.autograd.grad(out.values.square().sum(), layer.centroids, allow_unused=True, retain_graph=True)
    by_fit = torch.autograd.grad(out.auxiliary_loss, [layer.centroids, x], allow_unused=True)
    assert by_task is None and by_fit[1] is None and bool(by_fit[0].any())
