"""Suite ``backends``: every backend on the same masks, and how far the automatic choice is from the fastest."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import available_backends, edge_attention
from sbmt.attention.dispatch import pick_backend
from sbmt.attention.inputs import EdgeTerms
from sbmt.experiments.benchmarks.cases import D_HEAD
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.progress import Track, untracked
from sbmt.graph.edges import EdgeList

MOST_MESSAGES = 2**27  # edges · d_head above which message passing is left out


@dataclass(frozen=True)
class Mask:
    """A random mask: every pair of ``n`` queries and keys has the same probability, in each of ``n_graphs`` heads."""

    n_graphs: int
    n: int
    density: float

    def draw(self) -> EdgeList:
        """The mask, always drawn from the same seed."""
        generator = torch.Generator().manual_seed(0)
        return EdgeList.from_dense(torch.rand(self.n_graphs, 1, self.n, self.n, generator=generator) < self.density)


@dataclass(frozen=True)
class BackendGrid:
    """What to measure: every combination of these with at most ``most_cells`` pairs over all graphs."""

    graph_counts: tuple[int, ...]
    sizes: tuple[int, ...]
    densities: tuple[float, ...]
    pace: Pace
    most_cells: int = 2**24

    def masks(self) -> list[Mask]:
        """All masks."""
        return [
            Mask(n_graphs, n, density)
            for n in self.sizes
            for n_graphs in self.graph_counts
            for density in self.densities
            if n_graphs * n**2 <= self.most_cells
        ]


FULL = BackendGrid((1, 8, 64), (64, 256, 1024, 4096), (1.0, 1 / 2, 1 / 4, 1 / 16, 1 / 64), Pace(0.25, 5, 101))
QUICK = BackendGrid((1, 8), (64, 256, 1024), (1 / 2, 1 / 16), Pace(0.1, 5, 101), most_cells=2**21)


def run(grid: BackendGrid, track: Track = untracked) -> dict[str, Any]:
    """Times forward and backward of every backend on the same masks."""
    cells = [measure(mask, grid.pace) for mask in track(grid.masks(), description="backends")]
    return {"attention": {"cells": cells, "loss": loss_of_auto(cells)}}


def measure(mask: Mask, pace: Pace) -> dict[str, Any]:
    """Times every backend on a mask, and compares the automatic choice with the fastest."""
    edges = mask.draw()
    generator = torch.Generator().manual_seed(0)
    shape = (mask.n_graphs, 1, mask.n, D_HEAD)
    query, key, value, cotangent = (torch.randn(shape, generator=generator) for _ in range(4))
    gate = torch.ones(edges.n_edges)
    leaves = [leaf.requires_grad_() for leaf in (query, key, value, gate)]

    def entry(backend: str) -> Entry:
        def step(fresh: EdgeList) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                edge_attention(query, key, value, fresh, gate, backend=backend), leaves, cotangent
            )

        return Entry(step, lambda: replace(edges))  # copies, without what edges keep for later calls

    names = [name for name in available_backends() if name != "pyg" or edges.n_edges * D_HEAD <= MOST_MESSAGES]
    results = race({name: entry(name) for name in names}, pace, reference="dense")
    best, auto = min(results, key=lambda name: results[name]["ratio"]), pick_backend(edges, EdgeTerms(gate))
    loss = results[auto]["ratio"] / results[best]["ratio"] if auto in results else None
    about = {"n_graphs": mask.n_graphs, "n": mask.n, "density": mask.density}
    return about | {"best": best, "auto": auto, "auto_over_best": loss and round(loss, 4), "results": results}


def loss_of_auto(cells: list[dict[str, Any]]) -> dict[str, float]:
    """Median and worst ratio of the time of auto's choice to that of the fastest.

    Example:
        >>> loss_of_auto([{"auto_over_best": x} for x in (1.0, 1.5, 1.0, None)])
        {'median': 1.0, 'worst': 1.5}
    """
    losses = [cell["auto_over_best"] for cell in cells if cell["auto_over_best"] is not None]
    return {"median": median(losses), "worst": max(losses)} if losses else {}
