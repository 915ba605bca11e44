"""Loops are built when they are first needed; the library works without them, and may be imported again."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VALUES = """
    import torch
    from sbmt import EdgeList, SBMAttention, available_backends, build_attention, edge_attention

    torch.manual_seed(0)
    x = torch.randn(3, 2, 50, 8, requires_grad=True)
    edges = EdgeList.from_dense(torch.rand(3, 2, 50, 50) < 0.1)
    for backend in ("dense", "auto"):
        out = edge_attention(x, x, x, edges, dropout=0.3, generator=torch.Generator().manual_seed(0), backend=backend)
        print([round(v, 3) for v in torch.autograd.grad(out.square().sum(), x)[0].flatten()[:9].tolist()])
    for preset in ("recommended", "faithful", "fitted"):
        layer = build_attention("sbm", preset=preset, d_head=8, n_heads=2, n_clusters=16, dropout=0.2)
        model = layer.block_model(x, x)
        out = layer(x, x, x, return_edges=True)
        (out.values.square().sum() + out.density.sum() + out.auxiliary_loss).backward()
        assert all(p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())
        expected = out.edges.density() if preset == "fitted" else model.expected_mask(0.01).mean((2, 3))
        assert out.values.isfinite().all() and (out.density - expected).abs().max() < 0.12
"""


def run(script, **environment):
    """What a new interpreter prints, line by line."""
    code = [sys.executable, "-c", textwrap.dedent(script)]
    environment = os.environ | environment
    done = subprocess.run(code, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def compiled():
    return run(VALUES + "    assert 'cpu' in available_backends()\n")


@pytest.mark.parametrize("how", ["disabled", "missing", "without cffi"])
def test_everything_works_without_a_compiler(how, compiled):
    """Gradients along given edges are the same, dropout included; layers draw other edges by the same law."""
    missing = "    import sys\n    sys.modules['cffi'] = None\n" if how == "without cffi" else ""
    none = "    assert available_backends() == ['dense', 'pyg']\n"
    command = {"disabled": {"CXX": ""}, "missing": {"CXX": "no-such-compiler -O3"}}.get(how, {})
    assert run(missing + VALUES + none, **command) == compiled


FIRST_CALL = """
    import sys, torch, sbmt
    before = "cffi" in sys.modules
    sbmt.SBMAttention(4, 1, 2, backend="cpu")(*torch.randn(3, 1, 1, 20, 4))
    print(before, "cffi" in sys.modules)
"""


def test_loops_are_loaded_when_first_needed():
    assert run(FIRST_CALL) == ["False True"]


def test_loops_are_compiled_once_and_kept(tmp_path):
    logged = tmp_path / "log"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {logged}\nexec c++ "$@"\n', "utf-8")
    compiler.chmod(0o755)
    for _ in range(2):
        run(FIRST_CALL, XDG_CACHE_HOME=str(tmp_path), CXX=str(compiler))
    assert logged.read_text("utf-8").count("draw.cpp") == 1
    assert [path.suffix for path in (tmp_path / "sbmt").iterdir()] == [".so"]


@pytest.mark.parametrize("place", ["/dev/null", "/proc"])
def test_where_nothing_can_be_kept_each_process_compiles(place):
    assert run(FIRST_CALL, XDG_CACHE_HOME=place) == ["False True"]


def test_a_compiler_that_fails_is_named():
    script = textwrap.dedent(FIRST_CALL).replace("sbmt.SBM", "try: sbmt.SBM")
    script = script.replace("print(before", "except sbmt.SbmtError as error: print(error)\nprint(before")
    message, *_ = run(script, CXX="false")
    assert message.startswith("expected a working C++ compiler (false ") and "exit status 1" in message
    assert "CXX" in message
