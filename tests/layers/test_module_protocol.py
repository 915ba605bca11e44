"""SBMAttention lives where PyTorch modules live: state dicts, copies, pickles, autocast, other types, the compiler."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sbmt.layers import SBMAttention
from tests.layers.inputs import seeded, tokens

ROOT = Path(__file__).parents[2]
BACKENDS = pytest.mark.parametrize("backend", ["dense", "pyg"])


def make(**settings):
    torch.manual_seed(0)
    return SBMAttention(4, 3, 5, **settings)


def attend(layer, x, **arguments):
    return layer(x, x, x, generator=seeded(), **arguments)


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))])
@BACKENDS
def test_a_copy_attends_alike_and_stands_alone(backend, copy_of):
    layer, x = make(backend=backend, window=2, link="poisson", exploration=0.2), tokens()
    twin = copy_of(layer)
    assert torch.equal(attend(layer, x).values, attend(twin, x).values)
    with torch.no_grad():
        twin.clusters.zero_()
    assert (layer.clusters != 0).any()


def test_the_state_dict_goes_round():
    layer, x = make(), tokens()
    torch.manual_seed(1)
    other = SBMAttention(4, 3, 5)
    assert not torch.equal(attend(layer, x).expected_density, attend(other, x).expected_density)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(attend(layer, x).values, attend(other, x).values)


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
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_number_types(dtype, backend):
    layer, x = make(backend=backend).to(dtype), tokens().to(dtype).requires_grad_()
    out = attend(layer, x)
    assert out.values.dtype == dtype
    assert layer.block_model(x, x).block_matrix.dtype == torch.promote_types(dtype, torch.float32)
    out.values.square().sum().backward()
    assert all((p.grad != 0).any() and p.grad.dtype == dtype for p in (x, *layer.parameters()))


COMPILED = """
import torch
from sbmt import SBMAttention

torch.manual_seed(0)
layer, x = SBMAttention(4, 3, 5, backend="dense", dropout=0.2, window=2), torch.randn(2, 3, 8, 4)
gradients = []
for attend in (layer, torch.compile(layer, backend="aot_eager")):
    out = attend(x, x, x, generator=torch.Generator().manual_seed(0))
    gradients.append(torch.autograd.grad(out.values.square().sum() + out.density.sum(), list(layer.parameters())))
    gradients[-1] += (out.values, out.density)
for plain, compiled in zip(*gradients, strict=True):
    torch.testing.assert_close(plain, compiled)
print("the same")
"""


@pytest.mark.slow
def test_the_compiler_takes_it():
    """Graph breaks are allowed, other values are not. The compiler cannot read the type checks that tests switch on."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0 and done.stdout.strip() == "the same", done.stderr


def test_settings_are_shown():
    assert "n_clusters=5" in repr(make()) and "sampler='fastrg'" in repr(make(sampler="fastrg"))
