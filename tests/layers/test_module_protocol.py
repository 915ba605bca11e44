"""Attentions live where PyTorch modules live: state dicts, copies, pickles, autocast, other types, the compiler."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sbmt.attention import available_backends
from sbmt.layers import SBMAttention, build_attention
from sbmt.layers.registry import RESERVED
from tests.layers.inputs import seeded, tokens

ROOT = Path(__file__).parents[2]
BACKENDS = pytest.mark.parametrize("backend", available_backends())


def make(**settings):
    torch.manual_seed(0)
    return SBMAttention(4, 3, 5, **settings)


def attend(layer, x, **arguments):
    return layer(x, x, x, generator=seeded(), **arguments)


def build(name):
    sizes = {"linformer": {"n_positions": 8, "n_projected": 3}, "sbm_static": {"n_positions": 8}}.get(name, {})
    return build_attention(name, d_head=4, n_heads=3, **sizes)


@pytest.mark.parametrize("how", ["copied", "pickled", "loaded"])
@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_copy_attends_alike_and_stands_alone(name, how):
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
    assert all((tensor != 0).any() for tensor in layer.state_dict().values())


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


@BACKENDS
def test_training_in_16_bits(backend):
    dtype = torch.bfloat16
    layer, x = make(backend=backend).to(dtype), tokens().to(dtype).requires_grad_()
    out = attend(layer, x)
    assert out.values.dtype == dtype
    assert layer.block_model(x, x).block_matrix.dtype == torch.float32
    out.values.square().sum().backward()
    assert all((p.grad != 0).any() and p.grad.dtype == dtype for p in (x, *layer.parameters()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@BACKENDS
def test_without_gradients_it_attends_alike(backend, mode):
    layer, x = make(backend=backend, window=2, dropout=0.3), tokens()
    expected = attend(layer, x)
    with mode():
        found = attend(layer, x)
    assert torch.equal(found.values, expected.values) and torch.equal(found.density, expected.density)
    assert expected.values.requires_grad and not found.values.requires_grad
    attend(layer, x).values.sum().backward()  # what was computed in between leaves no trace


COMPILED = """
import torch
from sbmt import SBMAttention


def results(attend, layer, x, generator):
    out = attend(x, x, x, generator=generator)
    gradients = torch.autograd.grad(out.values.square().sum() + out.density.sum(), [x, *layer.parameters()])
    return [out.values, out.density, *gradients]


for backend, shared_graph, has_generator in (("dense", False, True), ("cpu", True, False)):
    torch.compiler.reset()
    torch.manual_seed(0)
    layer = SBMAttention(4, 3, 5, backend=backend, dropout=0.2, window=2, shared_graph=shared_graph)
    x, found = torch.randn(2, 3, 8, 4, requires_grad=True), []
    for attend in (layer, torch.compile(layer, backend="aot_eager")):
        torch.manual_seed(1)
        found.append(results(attend, layer, x, torch.Generator().manual_seed(1) if has_generator else None))
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(plain, compiled)
print("the same")
"""
TWO_LENGTHS = """
import torch
from sbmt import SBMAttention

torch.manual_seed(0)
torch.set_grad_enabled(False)
layer = SBMAttention(8, 2, n_clusters=4, self_loops=True).eval()
compiled = torch.compile(layer)
for n in (12, 9):
    x = torch.randn(2, 2, n, 8)
    torch._dynamo.maybe_mark_dynamic(x, 2)
    plain, other = (torch.manual_seed(1) and attend(x, x, x).values for attend in (layer, compiled))
    torch.testing.assert_close(plain, other)
print("the same")
"""


def same_in_a_process(code):
    """In a process of its own, since the compiler cannot read the type checks that tests switch on."""
    alone = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # one graph needs no helpers, each of which loads torch
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=alone)
    assert done.returncode == 0 and done.stdout.strip() == "the same", done.stderr


@pytest.mark.slow
def test_the_compiler_takes_it():
    """Graph breaks are allowed, other values are not."""
    same_in_a_process(COMPILED)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_code_serves_every_sequence_length():
    """Symbols stand for it from the first call on, where they can; self-loops are a window of width 0."""
    same_in_a_process(TWO_LENGTHS)


def test_settings_are_shown():
    shown = repr(make(sampler="fastrg", link="poisson", membership="softmax", is_diagonal=True))
    for setting in ("n_clusters=5", "sampler='fastrg'", "membership='softmax'", "is_diagonal=True"):
        assert setting in shown
    assert "n_positions=8" in repr(build("sbm_static"))
