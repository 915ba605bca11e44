"""Grids so small that a suite takes a second."""

import torch

from sbmt.experiments.benchmarks import attention, backends, memory, sampler
from sbmt.experiments.benchmarks.attention import Grid, of_both_kinds
from sbmt.experiments.benchmarks.cases import Setting, fitted_setting
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, GPU_CONTESTANTS, Contestant, layer_with
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


def gpu_grid(*densities, **changed):
    """The suite ``gpu`` on the CPU; contestants may be changed by name."""
    contestants = {name: ON_CPU[name] for name in ("sdpa", "sparse", "dense")} | changed
    settings = of_both_kinds(*((64, density) for density in densities), **SMALL)
    return Grid({"gpu": settings}, PACE, contestants, [], ("sparse",))


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    made_up = {
        "target": of_both_kinds((128, 0.05)),
        "density": of_both_kinds((128, 0.05)),
        "n": of_both_kinds((64, 0.1), (128, 0.05)),
    }
    some = {name: CONTESTANTS[name] for name in ("sdpa", "sbm", "torch.sparse")}
    patch.setattr(attention, "QUICK", Grid(made_up, PACE, some, of_both_kinds((64, 0.1))))
    fitted = {name: attention.FITTED_CONTESTANTS[name] for name in ("sdpa", "sbm", "window", "transformer_conv")}
    points = [fitted_setting(n, 8.0) for n in (64, 128)]
    sweeps = {"n": points, "keys": points[:1]}
    few = {name: fitted[name] for name in ("sdpa", "sbm")}
    half = Grid({"bfloat16": points[:1]}, PACE, few, [], dtype=torch.bfloat16)
    patch.setattr(attention, "FITTED_QUICK", [Grid(sweeps, PACE, fitted, []), half])
    patch.setattr(attention, "GPU_QUICK", gpu_grid(0.1))
    patch.setattr(sampler, "QUICK", sampler.SamplerGrid(64, (0.05, 0.2), (256, 512), PACE, degree=8.0))
    patch.setattr(backends, "QUICK", backends.BackendGrid((1, 2), (16, 32), (1.0, 0.1), PACE, most_cells=2**10))
    patch.setattr(memory, "FITTED_QUICK", memory.MemoryGrid(()))
    patch.setattr(memory, "QUICK", memory.MemoryGrid((Setting(256, 0.05, "structured"),), contestants=("sbm",)))
