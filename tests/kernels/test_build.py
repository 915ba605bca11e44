"""Loops are built when first needed. The library works without them, and can be imported again."""

import sys
import textwrap

import pytest
import torch

from sbmt.kernels import build
from sbmt.kernels.build import compiler
from tests.processes import run_python

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


def test_everything_works_without_a_compiler():
    """Gradients along given edges are the same, with dropout; layers draw different edges by the same law."""
    none = "    assert available_backends() == ['dense', 'pyg']\n"
    assert run_python(VALUES + none, CXX="") == run_python(VALUES + "    assert 'cpu' in available_backends()\n")


def test_there_is_no_compiler_where_its_command_or_cffi_is_missing(monkeypatch):
    find = compiler.__wrapped__  # without the cache
    assert find() is not None
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    assert find() is None
    monkeypatch.delenv("CXX")
    monkeypatch.setitem(sys.modules, "cffi", None)
    assert find() is None


FIRST_CALL = """
    import sys, torch, sbmt
    before = "cffi" in sys.modules
    sbmt.SBMAttention(4, 1, 2, backend="cpu")(*torch.randn(3, 1, 1, 20, 4))
    print(before, "cffi" in sys.modules)
"""


def write_script(path, code):
    path.write_text(f"#!/bin/sh\n{code}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Returns the folder in which two processes keep loops, and the log of the compiler below it."""
    folder = tmp_path_factory.mktemp("cache")
    logging = write_script(folder / "compiler", f'echo "$@" >> {folder / "log"}\nexec c++ "$@"')
    for _ in range(2):
        run_python(FIRST_CALL, XDG_CACHE_HOME=str(folder), CXX=logging)
    return folder


def test_loops_are_compiled_once_and_kept(kept):
    assert (kept / "log").read_text("utf-8").count("draw_exact.cpp") == 1
    assert [path.suffix for path in (kept / "sbmt").iterdir()] == [".so"]


HOMELESS = """
    import pathlib, torch, sbmt


    def home():
        raise RuntimeError("Could not determine home directory.")


    pathlib.Path.home = home
    layer, x = sbmt.MultiHeadAttention(8, 2, preset="fitted", n_clusters=16), torch.randn(2, 5, 8)
    output, attended = layer(x, x, x)
    (output.sum() + attended.auxiliary_loss).backward()
    print("False True")
"""
"""Simulates a container that runs under a user that its system does not list."""


@pytest.mark.parametrize("place", ["/dev/null", "no home"])
def test_where_nothing_can_be_kept_each_process_compiles(place, kept, tmp_path):
    """Loops are built at the first call. The compiler is replaced by a copy of loops that were compiled before."""
    [made] = (kept / "sbmt").iterdir()
    copy = f'touch {tmp_path / "log"}; while [ "$1" != -o ]; do shift; done; exec cp {made} "$2"'
    copying = write_script(tmp_path / "compiler", f'case "$*" in *draw_exact.cpp*) {copy};; *) exec c++ "$@";; esac')
    if place == "no home":
        found = run_python(HOMELESS, HOME=None, XDG_CACHE_HOME=None, CXX=copying)
    else:
        found = run_python(FIRST_CALL, XDG_CACHE_HOME=place, CXX=copying)
    assert found == ["False True"] and (tmp_path / "log").exists()


def test_a_compiler_that_fails_is_named():
    script = textwrap.dedent(FIRST_CALL).replace("sbmt.SBM", "try: sbmt.SBM")
    script = script.replace("print(before", "except sbmt.SbmtError as error: print(error)\nprint(before")
    message, *_ = run_python(script, CXX="false")
    assert message.startswith("expected a working C++ compiler (false ") and "exit status 1" in message
    assert "CXX" in message


@pytest.mark.parametrize(
    ("macros", "is_tuned"), [(b"__AVX512F__", True), (b"__AVX512F__ __tune_znver4__", False), (b"__AVX2__", False)]
)
def test_gathers_are_enabled_for_intel_processors_that_the_compiler_does_not_know(
    macros, is_tuned, monkeypatch, tmp_path
):
    commands = []
    monkeypatch.setattr(build, "_run", lambda command: commands.append(command) or macros)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(OSError):  # nothing was compiled
        build.library.__wrapped__(torch.float32)
    assert len(commands) == 3 and all(("-mtune=skylake-avx512" in command) == is_tuned for command in commands[1:])
