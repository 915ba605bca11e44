"""Tests the layer that fits its block model by likelihood: gradients, extreme settings, and errors."""

import math

import pytest
import torch

import sbmt
from sbmt import MultiHeadAttention
from tests.gradients import assert_same_gradients
from tests.layers.inputs import seeded, tokens
from tests.samplers.test_scaling import CountNumbers

BLOCK_MODEL = ("clusters", "log_rate", "node_mlp.0.weight", "node_mlp.0.bias")


def fitted(**settings):
    torch.manual_seed(0)
    settings = dict(n_clusters=16, edges_per_query=4.0) | settings
    return sbmt.build_attention("sbm", preset="fitted", **dict(d_head=4, n_heads=3) | settings)


def learns(module, inputs, loss):
    """Returns the names of parameters and inputs with non-zero gradients."""
    module.zero_grad()
    for x in inputs:
        x.grad = None
    loss.backward()
    named = [*module.named_parameters(), *zip(("query", "key", "value"), inputs, strict=True)]
    return {name for name, x in named if x.grad is not None and bool(x.grad.any())}


@pytest.mark.parametrize("is_training", [True, False])
def test_task_and_fit_train_different_parameters(is_training):
    layer, inputs = fitted().train(is_training), [tokens(seed=i).requires_grad_() for i in range(3)]
    out = layer(*inputs, generator=seeded())
    assert learns(layer, inputs, out.values.square().sum()) == {"sink", "query", "key", "value"}
    out = layer(*inputs, generator=seeded())
    assert learns(layer, inputs, out.auxiliary_loss) == set(BLOCK_MODEL)
    assert not out.density.requires_grad and not out.expected_density.requires_grad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    """The loss stays float32, while bfloat16 is used under autocast."""
    multi, x = MultiHeadAttention(12, 3, preset="fitted", n_clusters=16), torch.randn(2, 9, 12, generator=seeded())
    multi, x = (multi.half(), x.half()) if dtype == torch.float16 else (multi, x)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        values, out = multi(x, x, x, generator=seeded())
    assert values.isfinite().all() and out.auxiliary_loss.dtype == torch.float32 and out.auxiliary_loss.isfinite()
    out.auxiliary_loss.backward()
    assert multi.attention.clusters.grad.isfinite().all()


def test_memory_grows_with_the_edges():
    """None of the tensors of a step at 8,192 tokens has n² entries."""
    layer, n = fitted(d_head=32, edges_per_query=16.0), 8192
    x = tokens(batch=1, n=n, d=32).requires_grad_()
    with CountNumbers() as count:
        out = layer(x, x, x, generator=seeded())
        (out.values.sum() + out.auxiliary_loss).backward()
    n_edges = round(float(out.density.sum()) * n**2)
    assert count.largest <= max(n_edges + 3 * n, 3 * n * 32) and n_edges < 3 * n * 200, (count.largest, n_edges)


def test_training_starts_with_about_c_edges_per_query():
    settings = dict(d_head=32, n_clusters=128, edges_per_query=16.0)
    layer, restored = fitted(**settings), fitted(**settings)
    with torch.no_grad():
        for n in (1024, 64):
            x = tokens(n=n, d=32)
            expected = layer.eval().block_model(x, x).sum_of_rates() / (2 * n)
            assert ((expected > 4) & (expected < 80)).all(), n
        with torch.enable_grad():  # a training step
            layer.train()(*[tokens(n=1024, d=32)] * 3)
        restored.load_state_dict(layer.state_dict())
        x = tokens(n=64, d=32)
        for module in (layer, restored):
            module.edges_per_query = 99.0
            assert (module.block_model(x, x).sum_of_rates() / (2 * 64) < 5).all()  # 16 / 1024 per pair, and not 99 / 64


@pytest.mark.parametrize("log_rate, edges_per_query", [(-1000.0, 1e30), (-40.0, 1e-30), (1000.0, 1e30)])
@pytest.mark.parametrize("is_training", [True, False])
def test_everything_stays_finite_at_extreme_rates(is_training, edges_per_query, log_rate):
    layer = fitted(edges_per_query=edges_per_query).train(is_training)
    with torch.no_grad():
        layer.log_rate.fill_(log_rate)
    x = tokens().requires_grad_()
    out = layer(x, x, x, generator=seeded())
    (out.values.square().sum() + out.auxiliary_loss).backward()
    assert all(layer.get_parameter(name).grad.isfinite().all() for name in BLOCK_MODEL)
    assert out.values.isfinite().all() and x.grad.isfinite().all() and out.auxiliary_loss.isfinite()
    if log_rate < 0 and not is_training:
        assert (out.expected_density < 1e-9).all() and out.density.mean() == 1 / x.shape[2]  # only self-loops


def test_only_a_training_step_sets_the_start():
    layer = fitted(edges_per_query=2.0)
    with torch.no_grad():
        layer(*[tokens(n=4)] * 3)
    layer.eval()(*[tokens(n=8)] * 3)
    assert layer.log_start == 0
    layer.train()(*[tokens(n=16)] * 3)
    layer(*[tokens(n=4)] * 3)
    assert layer.log_start == pytest.approx(math.log(2 / 16))
    short = fitted(edges_per_query=20.0)
    short(*[tokens(n=16)] * 3)
    short(*[tokens(n=40)] * 3)
    assert -1e-5 < short.log_start < 0  # 20 / 16 edges per pair are cut to one


# --- the dense warm-up: full attention with its sink, and a fit to all pairs ---

N, HEADS, C, EXTRA = 9, 3, 3.0, 2.0


def dense_layer(**settings):
    torch.manual_seed(0)
    sizes = dict(d_head=4, n_heads=HEADS, n_clusters=16, edges_per_query=C, exploration=sbmt.ExtraKeys(EXTRA))
    layer = sbmt.build_attention("sbm", preset="fitted", **sizes | settings)
    with torch.no_grad():
        layer.sink.copy_(torch.tensor([0.5, -1.0, 2.0]))
        layer.log_rate.copy_(torch.tensor([-6.0, -5.0, -4.0]))
    layer.is_dense = True
    return layer.double()


def qkv():
    return [tokens(heads=HEADS, n=N, seed=seed, dtype=torch.float64).requires_grad_() for seed in range(3)]


def by_hand(layer, query, key, value, mask, window):
    """Computes values and fit from arrays over all pairs, with (batch, n) bool ``mask``."""
    pairs = (mask[:, :, None] & mask[:, None])[:, None]
    scores = (query @ key.mT / 2.0).masked_fill(~pairs, -torch.inf)
    weights = scores.exp() / (layer.sink.exp()[:, None, None] + scores.exp().sum(-1, keepdim=True))
    model = layer.block_model(query, key, mask, mask)
    rates = (model.query_membership @ model.block_matrix @ model.key_membership.mT).masked_fill(~pairs, 0.0)
    place = torch.arange(N)
    is_far = (place[:, None] - place).abs() > window / 2
    gains = weights.detach() * (rates + EXTRA / N).log() * (pairs & is_far)
    n_queries = HEADS * mask.sum()
    return weights @ value, (rates.sum() - C * gains.sum()) / n_queries, rates


@pytest.mark.parametrize("backend, window", [("dense", 0), ("pyg", 4), ("cpu", 4)])
def test_it_is_full_attention_with_a_sink_and_fits_all_pairs_but_certain_ones(window, backend):
    """Compares the values, the fit and all gradients."""
    layer, inputs = dense_layer(window=window, backend=backend), qkv()
    mask = torch.arange(N)[None] < torch.tensor([[N], [6]])
    out = layer(*inputs, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    values, fit, rates = by_hand(layer, *inputs, mask, window)
    assert torch.equal(out.edges.to_dense(), (mask[:, :, None] & mask[:, None])[:, None].expand(-1, HEADS, -1, -1))
    assert (out.density == 1).all()
    torch.testing.assert_close(out.values, values)
    torch.testing.assert_close(out.auxiliary_loss, fit)
    n_pairs = torch.tensor([[N**2], [36]])
    torch.testing.assert_close(out.expected_density, (1 - (-rates).exp()).sum((-1, -2)) / n_pairs)
    found, expected = (torch.cat([v.flatten(), f[None]]) for v, f in ((out.values, out.auxiliary_loss), (values, fit)))
    assert_same_gradients(found, expected, [*inputs, *layer.parameters()], rtol=1e-7, atol=1e-7, least=1e-6)


def test_a_dense_mask_is_not_reweighted_if_there_are_more_queries_than_keys():
    layer, (query, key, value) = dense_layer(self_loops=False), qkv()
    out = layer(query, key[:, :, :2], value[:, :, :2], generator=seeded())
    weights = (query @ key[:, :, :2].mT / 2.0).exp()
    expected = weights @ value[:, :, :2] / (layer.sink.exp()[:, None, None] + weights.sum(-1, keepdim=True))
    torch.testing.assert_close(out.values, expected)


@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_rare_edges_have_weights_of_at_most_the_given_bound(backend):
    """Values are one-hot, so outputs are attention weights."""
    x, ones = tokens(n=30), torch.eye(30).expand(2, 3, 30, 30)
    layer = fitted(window=None, self_loops=False, sink=False, reweight=0.25, backend=backend).eval()
    p = layer.block_model(x, x).expected_mask()
    assert p.min() < 0.25 < p.max()
    weights = layer(x, x, ones, generator=seeded()).values
    assert all((weights > 0)[is_kind].any() for is_kind in (p < 0.25, p > 0.25))
    expected = (x @ x.mT / 2).exp() / p.clamp(min=0.25) * (weights > 0)
    torch.testing.assert_close(weights, (expected / expected.sum(-1, keepdim=True)).nan_to_num())


def test_only_training_is_dense_and_seeds_give_the_same_masks():
    """The generator advances as usual, so that later steps draw the same masks."""
    layer, inputs = dense_layer(), qkv()
    generators = seeded(), seeded()
    layer(*inputs, generator=generators[0])
    layer.is_dense = False
    drawn = layer(*inputs, generator=generators[1])
    assert (drawn.density < 1).all()
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    found = []
    for is_dense in (True, False):
        layer.eval().is_dense = is_dense
        found.append(layer(*inputs, generator=seeded()))
    assert torch.equal(found[0].values, found[1].values) and (found[0].density < 1).all()
