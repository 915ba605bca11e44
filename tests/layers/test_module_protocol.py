"""Attention layers support the protocols of PyTorch modules: state dicts, copies, autocast, the compiler."""

import copy
import pickle

import pytest
import torch

from sbmt.attention import available_backends
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention
from sbmt.layers.registry import RESERVED
from tests.layers.inputs import seeded, tokens
from tests.processes import run_python

BACKENDS = pytest.mark.parametrize("backend", available_backends())


def make(**settings):
    torch.manual_seed(0)
    return SBMAttention(4, 3, 5, **settings)


def attend(layer, x, **arguments):
    return layer(x, x, x, generator=seeded(), **arguments)


def build(name):
    sizes = {"linformer": {"n_positions": 8, "n_projected": 3}, "sbm_static": {"n_positions": 8}}
    sizes["fitted"] = dict(name="sbm", preset="fitted", n_clusters=64)
    return build_attention(**dict(name=name, d_head=4, n_heads=3) | sizes.get(name, {}))


@pytest.mark.parametrize("how", ["copied", "pickled", "loaded"])
@pytest.mark.parametrize("name", ["fitted", *sorted(RESERVED)])
def test_a_copy_is_equal_and_independent(name, how):
    torch.manual_seed(0)
    layer, x = build(name), tokens()
    if how == "loaded":
        twin = build(name)
        twin.load_state_dict(layer.state_dict())
    else:
        twin = copy.deepcopy(layer) if how == "copied" else pickle.loads(pickle.dumps(layer))
    assert torch.equal(attend(layer, x).values, attend(twin, x).values)
    with torch.no_grad():
        for tensor in twin.state_dict().values():
            tensor.zero_()
    assert all((tensor != 0).any() for name, tensor in layer.state_dict().items() if name != "sink")


@pytest.mark.parametrize("settings", [dict(preset="fitted"), dict(preset="recommended")], ids=str)
def test_reset_parameters_redraws_all_of_them(settings):
    torch.manual_seed(0)
    layer = MultiHeadAttention(64, 2, n_clusters=64, has_tied_start=True, **settings)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    layer(*torch.randn(3, 2, 8, 64))  # starts training
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(7.0)
    layer.reset_parameters()
    for name, tensor in layer.state_dict().items():
        is_random = len(before[name].unique()) > 1
        assert torch.equal(tensor, before[name]) is not is_random, name
        if is_random:
            assert tensor.std().item() == pytest.approx(before[name].std().item(), rel=0.3), name
    query, key, _ = layer.in_proj_weight.chunk(3)
    assert torch.equal(query, key)


def test_the_block_model_stays_float32_under_autocast():
    layer, x = make(), tokens()
    plain = layer.block_model(x, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = layer.block_model(x, x)
        from_half = layer.block_model(x.bfloat16(), x.bfloat16())
    for model in (cast, from_half):
        assert model.query_membership.dtype == model.block_matrix.dtype == model.key_membership.dtype == torch.float32
    assert torch.equal(cast.expected_mask(), plain.expected_mask())
    torch.testing.assert_close(from_half.expected_mask(), plain.expected_mask(), rtol=0.05, atol=0)


@BACKENDS
def test_training_under_autocast(backend):
    layer, x = make(backend=backend), tokens()
    exact = attend(layer, x, return_edges=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attend(layer, x, return_edges=True)
    assert torch.equal(out.edges.keys, exact.edges.keys)
    torch.testing.assert_close(out.values.float(), exact.values, rtol=0, atol=0.05)
    (out.values.float().square().sum() + out.density.sum()).backward()
    assert all((p.grad != 0).any() and p.grad.isfinite().all() and p.grad.dtype == p.dtype for p in layer.parameters())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("settings", [{}, dict(preset="fitted", n_clusters=16, backend="cpu")], ids=["gated", "fitted"])
@BACKENDS
def test_outputs_are_the_same_without_gradients(backend, settings, mode):
    """There is no difference, except that nothing is fitted."""
    settings = dict(n_clusters=5, backend=backend, window=2, dropout=0.3) | settings
    layer, x = build_attention("sbm", d_head=4, n_heads=3, **settings), tokens()
    expected = attend(layer, x)
    with mode():
        found = attend(layer, x)
    for name in ("values", "density", "expected_density"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert found.auxiliary_loss == 0 and (expected.auxiliary_loss != 0) == ("preset" in settings)
    assert expected.values.requires_grad and not found.values.requires_grad
    attend(layer, x).values.sum().backward()  # computations in between have no effect


COMPILED = """
import torch
from sbmt import build_attention


def results(attend, layer, x, generator):
    out = attend(x, x, x, generator=generator)
    loss = out.values.square().sum() + out.density.sum() + out.auxiliary_loss
    gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
    return [out.values, out.density, *gradients]


for backend, preset, has_generator in (("dense", "recommended", True), ("cpu", "fitted", False)):
    torch.compiler.reset()
    torch.manual_seed(0)
    layer = build_attention("sbm", preset=preset, d_head=4, n_heads=3, n_clusters=16, backend=backend, dropout=0.2)
    compiled = torch.compile(layer, backend="aot_eager")
    for n in (8, 11):
        x, found = torch.randn(2, 3, n, 4, requires_grad=True), []
        for attend in (layer, compiled):
            torch.manual_seed(1)
            found.append(results(attend, layer, x, torch.Generator().manual_seed(1) if has_generator else None))
        for plain, other in zip(*found, strict=True):
            torch.testing.assert_close(plain, other)
print("the same")
"""


@pytest.mark.slow
def test_it_compiles():
    """Graph breaks are allowed, but values must be the same. The compiler cannot read the tests' type checks."""
    assert run_python(COMPILED) == ["the same"]
