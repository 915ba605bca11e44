"""Benchmark suites small enough to take a second each."""

from sbmt.experiments.benchmarks import suites
from sbmt.experiments.benchmarks.cases import Setting, fitted_setting


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    sweeps = {name: [Setting(128, 0.05, "structured")] for name in ("density", "n")}
    patch.setitem(suites.SUITES, "attention", sweeps)
    patch.setitem(suites.SUITES, "fitted", {name: [fitted_setting(64, 8)] for name in ("n", "keys")})
