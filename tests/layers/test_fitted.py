"""The layer that fits its block model by likelihood: what learns from what, extreme settings, and what it refuses."""

import math

import pytest
import torch
from torch.utils._pytree import tree_leaves

import sbmt
from sbmt import MultiHeadAttention
from tests.layers.inputs import seeded, tokens

BLOCK_MODEL = ("clusters", "log_rate", "node_mlp.0.weight", "node_mlp.0.bias")


def fitted(**settings):
    torch.manual_seed(0)
    settings = dict(n_clusters=16, edges_per_query=4.0) | settings
    return sbmt.build_attention("sbm", preset="fitted", **dict(d_head=4, n_heads=3) | settings)


def learns(module, inputs, loss):
    """The names of what gets a gradient other than zero."""
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


def test_without_gradients_nothing_is_fitted_and_the_rest_stays_the_same():
    layer, inputs = fitted(backend="cpu"), [tokens(seed=i) for i in range(3)]
    taught = layer(*inputs, generator=seeded())
    with torch.no_grad():
        asked = layer(*inputs, generator=seeded())
    assert taught.auxiliary_loss != 0
    assert asked.auxiliary_loss == 0
    for name in ("values", "density", "expected_density"):
        assert torch.equal(getattr(asked, name), getattr(taught, name)), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    """The loss is float32 all the same; bfloat16 is autocast's here."""
    multi, x = MultiHeadAttention(12, 3, preset="fitted", n_clusters=16), torch.randn(2, 9, 12, generator=seeded())
    multi, x = (multi.half(), x.half()) if dtype == torch.float16 else (multi, x)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        values, out = multi(x, x, x, generator=seeded())
    assert values.isfinite().all() and out.auxiliary_loss.dtype == torch.float32 and out.auxiliary_loss.isfinite()
    out.auxiliary_loss.backward()
    assert multi.attention.clusters.grad.isfinite().all()


def test_memory_grows_with_the_edges():
    """None of the tensors of a step at 8,192 tokens has n² entries."""
    layer, largest, n = fitted(d_head=32, edges_per_query=16.0), 0, 8192

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            largest = max(largest, *(x.numel() for x in tree_leaves(out) if isinstance(x, torch.Tensor)), 0)
            return out

    x = tokens(batch=1, n=n, d=32).requires_grad_()
    with Watch():
        out = layer(x, x, x, generator=seeded())
        (out.values.sum() + out.auxiliary_loss).backward()
    n_edges = round(float(out.density.sum()) * n**2)
    assert largest <= max(n_edges + 3 * n, 3 * n * 32) and n_edges < 3 * n * 200, (largest, n_edges)


def test_training_starts_with_about_c_edges_per_query():
    settings = dict(d_head=32, n_clusters=128, edges_per_query=16.0)
    layer, restored = fitted(**settings), fitted(**settings)
    with torch.no_grad():
        for n in (1024, 64):
            x = tokens(n=n, d=32)
            expected = layer.eval().block_model(x, x).sum_of_rates() / (2 * n)
            assert ((expected > 4) & (expected < 80)).all(), n
        with torch.enable_grad():  # a step of training
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
        assert (out.expected_density < 1e-9).all() and out.density.mean() == 1 / x.shape[2]  # loops alone


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
    assert -1e-5 < short.log_start < 0  # 20 / 16 edges per pair are no more than one
