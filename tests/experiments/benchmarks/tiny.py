"""Suites so small that each takes a second."""

from sbmt.experiments.benchmarks import attention, backends, memory
from sbmt.experiments.benchmarks.cases import Setting, fitted_setting


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    sweeps = {name: [Setting(n, 0.05, "structured") for n in (128, 64)] for name in ("density", "n")}
    patch.setitem(attention.SWEEPS, "attention", sweeps)
    points = [fitted_setting(n, 8.0) for n in (64, 128)]
    patch.setitem(attention.SWEEPS, "fitted", {"n": points, "keys": points[:1]})
    patch.setattr(backends, "MASKS", [(1, 16, 1.0), (2, 32, 0.1)])
    patch.setattr(memory, "STEPS", [Setting(256, 0.05, "structured")])
    patch.setattr(memory, "FITTED_STEPS", [])
