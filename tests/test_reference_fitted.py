"""Compares the library's fitted attention with the plain one: output, auxiliary loss and every gradient."""

import math

import pytest
import torch

import sbmt
from sbmt.reference_fitted import FittedAttention
from tests.gradients import weighted_sum
from tests.layers.inputs import seeded, tokens

N, D, HEADS, CLUSTERS = 24, 8, 3, 36


def both(is_training, backend="auto", causal=False):
    torch.manual_seed(3)
    settings = dict(n_clusters=CLUSTERS, edges_per_query=6.0, causal=causal)
    layer = sbmt.build_attention("sbm", preset="fitted", d_head=D, n_heads=HEADS, backend=backend, **settings)
    with torch.no_grad():  # initial values would hide errors
        layer.log_rate.copy_(torch.tensor([-2.0, -0.5, 0.3]))
        layer.sink.copy_(torch.tensor([0.4, -1.0, 2.0]))
    x = tokens(heads=HEADS, n=N, d=D)
    layer(x, x, x)  # the first step, in which rates start from c/n
    assert layer.log_start == pytest.approx(math.log(6 / ((N + 1) / 2 if causal else N)))
    plain = FittedAttention(D, HEADS, CLUSTERS, edges_per_query=6.0, causal=causal)
    plain.load_state_dict(layer.state_dict())
    return layer.double().train(is_training), plain.double().train(is_training)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["dense", "pyg", "cpu"])
@pytest.mark.parametrize("is_training", [True, False])
def test_values_loss_and_gradients_are_those_of_the_plain_version(is_training, backend, causal):
    layer, plain = both(is_training, backend, causal)
    tokens = [torch.randn(2, HEADS, N, D, dtype=torch.float64, generator=seeded(i)).requires_grad_() for i in range(3)]
    out = layer(*tokens, generator=seeded(), return_edges=True)
    assert 0.05 < out.density.mean() < 0.95
    mask = out.edges.to_dense()
    values, auxiliary = plain(*tokens, mask)
    close = {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(out.values, values, **close)
    torch.testing.assert_close(out.auxiliary_loss, auxiliary, **close)
    found, expected = (
        torch.autograd.grad(weighted_sum(each) + fit, [*tokens, *module.parameters()])
        for module, each, fit in ((layer, out.values, out.auxiliary_loss), (plain, values, auxiliary))
    )
    for mine, theirs in zip(found, expected, strict=True):
        assert theirs.abs().max() > 1e-6
        torch.testing.assert_close(mine, theirs, **close)


def test_padding_changes_nothing():
    layer, plain = both(is_training=False)
    n_real = 15
    x = torch.randn(1, HEADS, N, D, dtype=torch.float64, generator=seeded())
    mask = torch.arange(N)[None] < n_real
    out = layer(x, x, x, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    real = x[:, :, :n_real]
    values, auxiliary = plain(real, real, real, out.edges.to_dense()[..., :n_real, :n_real])
    torch.testing.assert_close(out.values[:, :, :n_real], values)
    torch.testing.assert_close(out.auxiliary_loss, auxiliary)
    assert not out.values[:, :, n_real:].any()


def test_the_plain_version_draws_its_own_mask():
    layer, plain = both(is_training=False)
    x = torch.randn(4, HEADS, N, D, dtype=torch.float64, generator=seeded())
    torch.manual_seed(0)
    values, auxiliary = plain(x, x, x)
    assert values.isfinite().all() and auxiliary.isfinite()
    p = layer.block_model(x, x).expected_mask().masked_fill(torch.eye(N, dtype=torch.bool), 1.0)
    mask = layer(x, x, x, generator=seeded(), return_edges=True).edges.to_dense()
    spread = (p * (1 - p)).sum().sqrt()
    assert abs(mask.double().sum() - p.sum()) < 5.5 * spread  # false-alarm rate 4e-8
