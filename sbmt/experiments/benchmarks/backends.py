"""Suite ``backends``: every backend on the same masks, how far automatic choices are from the fastest, and better ones.

Cut-offs for this machine (``sbmt cutoffs --measure``) come from the same measurement on fewer masks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import available_backends, edge_attention
from sbmt.attention.dispatch import pick_backend
from sbmt.block_model.gate import straight_through_gate
from sbmt.block_model.pair_products import edge_dot, edge_gate
from sbmt.experiments.benchmarks.cases import D_HEAD
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.progress import Track, untracked
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cutoffs import Cutoff, cutoffs

WIDTH = 128  # of the rows that pair products multiply: the number of clusters
ALONG_EDGES = ("cpu", "edges")  # what the kernels are called among backends, and among ways to a product
MOST_MESSAGES = 2**27  # edges · d_head above which message passing is left out
Way = Callable[[EdgeList], Tensor]


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
TO_CHOOSE = BackendGrid((1, 8), (64, 256, 1024), (1.0, 1 / 2, 1 / 4, 1 / 16), Pace(0.05, 3, 31), most_cells=2**21)
QUICK = BackendGrid((1, 8), (64, 256, 1024), (1 / 2, 1 / 16), Pace(0.1, 5, 101), most_cells=2**21)


def run(grid: BackendGrid, track: Track = untracked) -> dict[str, Any]:
    """Times forward and backward of every backend, and of products along edges, on the same masks."""
    found: dict[str, list[dict[str, Any]]] = {"attention": [], "edge_dot": [], "edge_gate": []}
    for mask in track(grid.masks(), description="backends"):
        edges = mask.draw()
        found["attention"].append(_attention(mask, edges, grid.pace))
        for product in PRODUCTS:
            found[product].append(_product(product, mask, edges, grid.pace))
    return {name: {"cells": cells, "loss": loss_of_auto(cells)} for name, cells in found.items()}


def _attention(mask: Mask, edges: EdgeList, pace: Pace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shape = (mask.n_graphs, 1, mask.n, D_HEAD)
    query, key, value, cotangent = (torch.randn(shape, generator=generator) for _ in range(4))
    gate = torch.ones(edges.n_edges)
    leaves = [leaf.requires_grad_() for leaf in (query, key, value, gate)]

    def along(backend: str) -> Way:
        return lambda fresh: edge_attention(query, key, value, fresh, gate, backend=backend)

    names = [name for name in available_backends() if name != "pyg" or edges.n_edges * D_HEAD <= MOST_MESSAGES]
    return _cell(mask, edges, {name: along(name) for name in names}, leaves, cotangent, pick_backend(edges), pace)


def _product(name: str, mask: Mask, edges: EdgeList, pace: Pace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shape = (mask.n_graphs, 1, mask.n, WIDTH)
    query, key = (torch.rand(shape, generator=generator).requires_grad_() for _ in range(2))
    cotangent = torch.randn(edges.n_edges, generator=generator)

    def along(way: Callable[[Tensor, Tensor, EdgeList], Tensor]) -> Way:
        return lambda fresh: way(query, key, fresh)

    ways = {route: along(way) for route, way in PRODUCTS[name].items()}
    is_dense = cutoffs()[name].takes_all_pairs(edges.n_edges, edges.cell_count)
    return _cell(mask, edges, ways, [query, key], cotangent, "dense" if is_dense else "edges", pace)


def _cell(
    mask: Mask, edges: EdgeList, ways: dict[str, Way], leaves: list[Tensor], cotangent: Tensor, auto: str, pace: Pace
) -> dict[str, Any]:
    """Times forward and backward of each way, and compares the automatic choice with the fastest."""

    def entry(way: Way) -> Entry:
        # Copies are as if just sampled, without what edges keep for later calls.
        return Entry(lambda fresh: torch.autograd.grad(way(fresh), leaves, cotangent), lambda: replace(edges))

    results = race({name: entry(way) for name, way in ways.items()}, pace, reference="dense")
    best = min(results, key=lambda name: results[name]["ratio"])
    loss = results[auto]["ratio"] / results[best]["ratio"] if auto in results else None
    about = {"n_graphs": mask.n_graphs, "n": mask.n, "density": mask.density}
    return about | {"best": best, "auto": auto, "auto_over_best": loss and round(loss, 4), "results": results}


def dense_dot(query: Tensor, key: Tensor, edges: EdgeList) -> Tensor:
    """One product over all pairs: the plain version of :func:`sbmt.block_model.pair_products.edge_dot`."""
    return (query @ key.mT).flatten()[edges.cells()]


def dense_gate(query: Tensor, key: Tensor, edges: EdgeList) -> Tensor:
    """The plain version of :func:`sbmt.block_model.pair_products.edge_gate`."""
    return straight_through_gate(dense_dot(query, key, edges))


PRODUCTS = {
    "edge_dot": {"dense": dense_dot, "edges": edge_dot},
    "edge_gate": {"dense": dense_gate, "edges": edge_gate},
}


def best_cutoff(cells: list[dict[str, Any]]) -> Cutoff:
    """The cut-off that would have lost least time on these masks, by the mean logarithm of what it loses on each.

    Example:
        >>> times = {"dense": {"ratio": 1.0}, "cpu": {"ratio": 2.0}}, {"dense": {"ratio": 1.0}, "cpu": {"ratio": 0.5}}
        >>> cells = [{"n_graphs": 1, "n": n, "density": 0.5, "results": x} for n, x in zip((64, 256), times)]
        >>> best_cutoff(cells)
        Cutoff(cells=4096, density=0.5)
    """
    sizes = [cell["n_graphs"] * cell["n"] ** 2 for cell in cells]
    found = [{name: cell["results"].get(name, {}).get("ratio") for name in ("dense", *ALONG_EDGES)} for cell in cells]

    def loss(cutoff: Cutoff) -> float:
        total = 0.0
        for cell, size, times in zip(cells, sizes, found, strict=True):
            along = min(time for name in ALONG_EDGES if (time := times[name]) is not None)
            is_dense = cutoff.takes_all_pairs(round(cell["density"] * size), size)
            total += log((times["dense"] if is_dense else along) / min(times["dense"], along))
        return total

    densities = sorted({cell["density"] for cell in cells}, reverse=True)
    return min((Cutoff(size, density) for size in sorted({0, *sizes}) for density in densities), key=loss)


def loss_of_auto(cells: list[dict[str, Any]]) -> dict[str, float]:
    """Median and worst ratio of the time of auto's choice to that of the fastest.

    Example:
        >>> loss_of_auto([{"auto_over_best": x} for x in (1.0, 1.5, 1.0, None)])
        {'median': 1.0, 'worst': 1.5}
    """
    losses = [cell["auto_over_best"] for cell in cells if cell["auto_over_best"] is not None]
    return {"median": median(losses), "worst": max(losses)} if losses else {}
