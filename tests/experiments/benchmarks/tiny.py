"""Grids so small that a suite takes a second."""

import torch

from sbmt.experiments.benchmarks import attention, backends, memory, sampler
from sbmt.experiments.benchmarks.attention import Grid
from sbmt.experiments.benchmarks.cases import Setting, fitted_setting
from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    GPU_CONTESTANTS,
    Contestant,
    layer_with,
)
from sbmt.experiments.benchmarks.timing import Pace

PACE = Pace(0.001, least=3, most=3)
SMALL = {"n_clusters": 8, "n_heads": 2, "d_head": 8}


def raising(error):
    """A contestant that fails."""

    def attend(case):
        raise error

    return Contestant("x", attend)


ON_CPU = GPU_CONTESTANTS | {
    "sparse": Contestant("sparse", layer_with()),
    "flex": raising(RuntimeError("Unsupported: x\nlong story")),
    "pyg": raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 34.00 GiB.")),
}
"""The contestants of a GPU, as far as a CPU can play them."""


def gpu_grid(**contestants):
    """The suite ``gpu`` on the CPU."""
    settings = [Setting(64, density, "structured", **SMALL) for density in (0.1, 0.3)]
    return Grid({"gpu": settings}, PACE, contestants or ON_CPU, "sparse")


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    sweeps = {name: [Setting(n, 0.05, "structured") for n in (128, 64)] for name in ("target", "density", "n")}
    some = {name: CONTESTANTS[name] for name in ("sdpa", "sbm")}
    patch.setattr(attention.Grid, "quick", lambda grid: grid)
    patch.setattr(attention, "ATTENTION", Grid(sweeps, PACE, some, parts=sweeps["n"]))
    fitted = {name: FITTED_CONTESTANTS[name] for name in ("sdpa", "sbm", "window")}
    points = [fitted_setting(n, 8.0) for n in (64, 128)]
    patch.setattr(attention, "FITTED", Grid({"n": points, "keys": points[:1]}, PACE, fitted))
    patch.setattr(attention, "HALF", Grid({"bfloat16": points[:1]}, PACE, fitted, dtype=torch.bfloat16))
    patch.setattr(attention, "GPU", gpu_grid())
    patch.setattr(sampler, "QUICK", sampler.SamplerGrid(64, (0.05, 0.2), (256, 512), PACE, degree=8.0))
    patch.setattr(backends, "QUICK", backends.BackendGrid((1, 2), (16, 32), (1.0, 0.1), PACE, most_cells=2**10))
    patch.setattr(memory, "FITTED_QUICK", memory.MemoryGrid(()))
    patch.setattr(memory, "QUICK", memory.MemoryGrid([Setting(256, 0.05, "structured")], contestants=("sbm",)))
