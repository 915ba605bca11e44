"""Grids so small that a suite takes a second."""

import torch

from sbmt.experiments.benchmarks import attention, backends, memory, sampler
from sbmt.experiments.benchmarks.attention import Grid
from sbmt.experiments.benchmarks.cases import Setting, fitted_setting
from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    Contestant,
)
from sbmt.experiments.benchmarks.timing import Pace

PACE = Pace(0.001, least=3, most=3)
SMALL = {"n_clusters": 8, "n_heads": 2, "d_head": 8}


def raising(error):
    """A contestant that fails."""

    def attend(case):
        raise error

    return Contestant("x", attend)


ON_CPU = CONTESTANTS | {
    "flex": raising(RuntimeError("Unsupported: x\nlong story")),
    "pyg": raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 34.00 GiB.")),
}
"""The contestants of a GPU, as far as a CPU can play them."""


def gpu_grid(**contestants):
    """The suite ``gpu`` on the CPU."""
    settings = [Setting(64, density, "structured", **SMALL) for density in (0.1, 0.3)]
    return Grid({"gpu": settings}, PACE, contestants or ON_CPU)


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    sweeps = {name: [Setting(n, 0.05, "structured") for n in (128, 64)] for name in ("target", "density", "n")}
    some = {name: CONTESTANTS[name] for name in ("sdpa", "sbm")}
    patch.setattr(attention.Grid, "quick", lambda grid: grid)
    patch.setattr(attention, "ATTENTION", Grid(sweeps, PACE, some))
    fitted = {name: FITTED_CONTESTANTS[name] for name in ("sdpa", "sbm", "window")}
    points = [fitted_setting(n, 8.0) for n in (64, 128)]
    patch.setattr(attention, "FITTED", Grid({"n": points, "keys": points[:1]}, PACE, fitted))
    patch.setattr(attention, "HALF", Grid({"bfloat16": points[:1]}, PACE, fitted, dtype=torch.bfloat16))
    patch.setattr(attention, "GPU", gpu_grid())
    patch.setattr(sampler, "QUICK", {"n": 64, "densities": (0.05, 0.2), "sizes": (256, 512), "pace": PACE})
    patch.setattr(backends, "QUICK", {"masks": [(1, 16, 1.0), (2, 32, 0.1)], "pace": PACE})
    patch.setattr(memory, "FITTED_QUICK", {"steps": ()})
    patch.setattr(memory, "QUICK", {"steps": [Setting(256, 0.05, "structured")], "contestants": ["sbm"]})
