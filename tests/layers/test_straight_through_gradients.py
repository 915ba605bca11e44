"""Tests equation 9: a sampled edge passes dL/dA · q·k/√d to its probability, and other pairs pass nothing."""

import pytest
import torch

from sbmt.block_model.model import BlockModel
from sbmt.layers import SBMAttention, sbm_attention
from tests.layers.inputs import seeded

BATCH, HEADS, N, M, K, D = 2, 2, 6, 7, 3, 4
backends = pytest.mark.parametrize("backend", ["dense", "pyg", "cpu"])


def inputs(seed=0):
    generator = seeded(seed)
    return [torch.randn(BATCH, HEADS, n, D, generator=generator, dtype=torch.float64) for n in (N, M, M)]


def loss_of(values):
    """Computes a smooth function that distinguishes all entries."""
    return (values * torch.linspace(-1, 2, values.numel(), dtype=values.dtype).view_as(values)).sin().sum()


def gradient_to_probabilities(query, key, value, mask, gate_rule):
    """Returns dL/dp of every pair, through the masked score A with the score rule, or else through the weight."""
    scores = query @ key.mT / D**0.5
    ones = torch.ones_like(scores).requires_grad_()  # the mask's entries as differentiable numbers
    if gate_rule == "score":
        masked_score = (scores * ones).detach().requires_grad_()  # A of equation 9
        exponentials = masked_score.exp() * mask
    else:
        exponentials = scores.exp() * ones * mask
    weights = exponentials / exponentials.sum(-1, keepdim=True).clamp(min=1e-300)
    loss = loss_of(weights @ value)
    if gate_rule == "weight":
        return torch.autograd.grad(loss, ones)[0]
    return torch.autograd.grad(loss, masked_score)[0] * scores * mask


def to_block_model(grad, query_membership, block_matrix, key_membership):
    """Returns the gradients of the factors of p = Y B Zᵀ from dL/dp."""
    y, b, z = query_membership, block_matrix, key_membership
    return grad @ z @ b.mT, (y.mT @ grad @ z).sum(0), grad.mT @ y @ b


@backends
@pytest.mark.parametrize("gate_rule", ["score", "weight"])
@pytest.mark.parametrize("exploration", [0.2, 0.0])
def test_gradients_of_memberships_and_block_matrix(exploration, gate_rule, backend):
    query, key, value = inputs()
    generator = seeded(1)
    y, z = (torch.rand(BATCH, HEADS, n, K, generator=generator, dtype=torch.float64) for n in (N, M))
    b = torch.rand(HEADS, K, K, generator=generator, dtype=torch.float64)
    b[:, 0, 1], b[:, 1, 0] = 1.0, 0.0  # far from symmetric, and some rates exceed 1
    assert 0 < ((y @ b @ z.mT) > 1).sum() < BATCH * HEADS * N * M
    leaves = [t.requires_grad_() for t in (y, b, z)]
    settings = dict(exploration=exploration, gate_rule=gate_rule, backend=backend)
    out = sbm_attention(query, key, value, BlockModel(*leaves), **settings, generator=seeded(2), return_edges=True)
    mask = out.edges.to_dense()
    assert 0 < mask.sum() < mask.numel()
    expected = gradient_to_probabilities(query, key, value, mask, gate_rule)
    assert (expected[~mask] == 0).all() and (expected[mask] != 0).any()
    ours = torch.autograd.grad(loss_of(out.values), leaves)
    for mine, by_hand in zip(ours, to_block_model(expected, *(t.detach() for t in leaves)), strict=True):
        torch.testing.assert_close(mine, by_hand, rtol=0, atol=1e-10)


def test_edges_of_a_window_do_not_train_the_block_model():
    torch.manual_seed(0)
    layer = SBMAttention(D, HEADS, K, window=2).double()
    query, key, value = (t[:, :, :N] for t in inputs(7))
    out = layer(query, key, value, generator=seeded(8), return_edges=True)
    mask = out.edges.to_dense()
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    learns = (distance > 1).double()
    model = layer.block_model(query, key)
    factors = [model.query_membership, model.block_matrix, model.key_membership]
    to_p = gradient_to_probabilities(query, key, value, mask, "score") * learns
    by_hand = torch.autograd.grad(factors, layer.clusters, to_block_model(to_p, *(f.detach() for f in factors)))
    ours = torch.autograd.grad(loss_of(out.values), layer.clusters)
    torch.testing.assert_close(ours[0], by_hand[0], rtol=0, atol=1e-10)
