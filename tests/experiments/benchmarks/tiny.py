"""Grids so small that a suite takes a second."""

from sbmt.experiments.benchmarks import attention, backends, memory, sampler, suites
from sbmt.experiments.benchmarks.timing import Pace


def use_tiny_grids(patch):
    """Makes every quick suite tiny; ``patch`` is pytest's monkeypatch."""
    small = {"contestants": ("sdpa", "sbm", "torch.sparse")}
    sweeps = {"sizes": (64, 128), "densities": (0.05,), "n_fixed": 128, "cluster_counts": ()}
    patch.setattr(attention, "DEGREE", 6.4)
    patch.setattr(
        attention, "QUICK", attention.AttentionGrid(**sweeps, targets=((128, 0.05),), parts=((64, 0.1),), **small)
    )
    patch.setattr(sampler, "QUICK", sampler.SamplerGrid(n=64, densities=(0.05, 0.2), sizes=(256, 512), degree=8.0))
    patch.setattr(backends, "QUICK", backends.BackendGrid((1, 2), (16, 32), (1.0, 0.1), most_cells=2**10))
    patch.setattr(memory, "QUICK", memory.MemoryGrid(((256, 0.05),), ("sbm",)))
    patch.setattr(suites, "Pace", lambda *_: Pace(0.001, least=3, most=3))
