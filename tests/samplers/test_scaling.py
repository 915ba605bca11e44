"""Work and memory grow with edges, not with pairs. The tests count numbers written, and measure no times."""

import sys

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sbmt import BlockModel
from tests.processes import run_python

SIZES = [512, 1024, 2048]


class CountNumbers(TorchDispatchMode):
    """Adds up the sizes of all tensors that operations return."""

    def __init__(self):
        super().__init__()
        self.total, self.largest = 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(out) if isinstance(t, torch.Tensor) and not func.is_view]
        self.total += sum(sizes)
        self.largest = max([self.largest, *sizes])
        return out


def thin_model(n, n_stars=0, n_clusters=8, degree=16):
    """Returns a model with about ``degree`` keys per query, and a few queries that have an edge to every key."""
    generator = torch.Generator().manual_seed(n)
    query, key = (torch.rand(1, 1, n, n_clusters, generator=generator) for _ in range(2))
    block = torch.rand(1, n_clusters, n_clusters, generator=generator)
    block *= degree / n / (query.mean(2) @ block[0] @ key.mean(2).mT).item()
    query[..., 0], block[:, 0], key[..., 0] = 0.0, 1.0, 1.0  # cluster 0 is for queries with all keys
    query[:, :, torch.randperm(n, generator=generator)[:n_stars]] = torch.eye(n_clusters)[0]
    return BlockModel(query, block, key)


def slope(x, y):
    return np.polyfit(np.log(x), np.log(y), 1)[0]


WORK = [("exact", True), ("fastrg", True), ("torch by candidates", True), ("bernoulli", False)]


@pytest.mark.parametrize(("draw", "is_linear"), WORK, indirect=["draw"])
def test_work_is_linear_in_the_edges_except_where_all_pairs_are_visited(draw, is_linear):
    edges, counts = [], []
    for n in SIZES:
        with CountNumbers() as count:
            edges.append(draw.edges(thin_model(n, n_stars=3)).n_edges)
        counts.append(count)
    assert slope(SIZES, edges) == pytest.approx(1, abs=0.05)
    growth = slope(edges, [count.total for count in counts])
    assert growth < 1.15 if is_linear else growth > 1.8
    assert (counts[-1].largest < SIZES[-1] ** 2) is is_linear


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_65536_tokens_fit_into_four_gibibytes():
    code = """
        import resource
        from sbmt import sample_edges
        from tests.samplers.test_scaling import thin_model
        edges = sample_edges(thin_model(65536, n_stars=3, n_clusters=128))
        assert edges.degrees().max() == 65536 and 18 < edges.n_edges / 65536 < 20
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"""
    (size,) = run_python(code)
    assert int(size) < 4 << 20
