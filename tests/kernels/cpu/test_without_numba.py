"""The library works without numba, and imports it no earlier than it must."""

import subprocess
import sys
import textwrap
from pathlib import Path

import torch

import sbmt.kernels.cpu
from sbmt.kernels.cpu import can_run_on

ROOT = Path(__file__).parents[3]

COMPLETE = """
    import sys
    sys.modules["numba"] = None  # what an import finds where it is not installed

    import torch
    from sbmt import SBMAttention, available_backends
    from sbmt.kernels.cpu import can_run_on

    assert available_backends() == ["dense", "pyg"] and not can_run_on(torch.device("cpu"))
    for settings in (dict(dropout=0.2, window=2), dict(link="poisson", gate_rule="weight"), dict(sampler="fastrg")):
        torch.manual_seed(0)
        layer, x = SBMAttention(8, 2, 4, exploration=0.1, **settings), torch.randn(3, 2, 150, 8, requires_grad=True)
        out = layer(x, x, x, generator=torch.Generator().manual_seed(0), return_edges=True)
        assert out.values.shape == x.shape and out.values.isfinite().all()
        model = layer.block_model(x, x)
        law = 1 - torch.exp(-model.expected_mask() - 0.1) if layer.sampler == "fastrg" else model.expected_mask(0.1)
        drawn = out.edges.to_dense()
        if layer.window:
            is_far = (torch.arange(150)[:, None] - torch.arange(150)).abs() > 1
            law, drawn = law[..., is_far], drawn[..., is_far]
        assert abs(float(drawn.float().mean() - law.mean())) < 0.01  # 135,000 cells: seven standard deviations
        (out.values.square().sum() + out.density.sum()).backward()
        assert all(p.grad.isfinite().all() and (p.grad != 0).any() for p in (x, *layer.parameters()))
    print(sorted(name for name in sys.modules if name.startswith("sbmt.kernels.cpu.")))
"""

IMPORT = """
    import sys
    import torch, sbmt
    before = "sbmt.kernels.cpu.toolchain" in sys.modules  # the one module that imports numba by itself
    x = torch.randn(1, 1, 20, 4)
    sbmt.SBMAttention(4, 1, 2, backend="cpu")(x, x, x)
    print(before, "sbmt.kernels.cpu.toolchain" in sys.modules)
"""


def run(script):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_everything_works_without_numba():
    assert run(COMPLETE) in ("[]", "['sbmt.kernels.cpu.threads', 'sbmt.kernels.cpu.threads.parallel']")


def test_kernels_are_imported_when_first_needed():
    assert run(IMPORT) == "False True"


def test_kernels_run_on_the_cpu_where_there_is_numba(monkeypatch):
    for has_numba in (True, False):
        monkeypatch.setattr(sbmt.kernels.cpu, "has_numba", lambda has_numba=has_numba: has_numba)
        assert can_run_on(torch.device("cpu")) is has_numba
        assert not can_run_on(torch.device("cuda")) and not can_run_on(torch.device("meta"))
