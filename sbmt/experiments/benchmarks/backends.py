"""Suite ``backends``: every backend on the same masks, and how far ``backend="auto"`` is from the fastest."""

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import available_backends, dispatch, edge_attention
from sbmt.block_model.gate import straight_through_gate
from sbmt.block_model.pair_products import edge_dot, edge_gate
from sbmt.experiments.benchmarks.cases import D_HEAD
from sbmt.experiments.benchmarks.parts import without_caches
from sbmt.experiments.benchmarks.progress import OnCase, counted
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.graph.edges import EdgeList

WIDTH = 128  # of the rows that pair products multiply: the number of clusters
MOST_MESSAGES = 2**27  # edges · d_head above which message passing is left out


@dataclass(frozen=True)
class Mask:
    """A random mask: every pair with the same probability.

    Attributes:
        n_graphs: Examples times heads.
        n: Number of queries and of keys of a graph.
        density: Share of the pairs that are edges.
    """

    n_graphs: int
    n: int
    density: float

    def draw(self) -> EdgeList:
        """The mask, always drawn from the same seed."""
        generator = torch.Generator().manual_seed(0)
        return EdgeList.from_dense(torch.rand(self.n_graphs, 1, self.n, self.n, generator=generator) < self.density)


@dataclass(frozen=True)
class BackendGrid:
    """What to measure: every combination with at most ``most_cells`` pairs.

    Attributes:
        graph_counts: Examples times heads.
        sizes: n.
        densities: Densities; 1 means every pair.
        most_cells: Largest number of pairs over all graphs.
    """

    graph_counts: tuple[int, ...]
    sizes: tuple[int, ...]
    densities: tuple[float, ...]
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


FULL = BackendGrid((1, 8, 64), (64, 256, 1024, 4096), (1.0, 1 / 2, 1 / 4, 1 / 16, 1 / 64))
QUICK = BackendGrid((1, 8), (64, 256, 1024), (1 / 2, 1 / 16), most_cells=2**21)


def run(grid: BackendGrid, pace: Pace, on_case: OnCase) -> dict[str, Any]:
    """Times forward and backward of every backend, and of products along edges, on the same masks."""
    masks = grid.masks()
    found: dict[str, list[dict[str, Any]]] = {"attention": [], "edge_dot": [], "edge_gate": []}
    for mask in counted(masks, len(masks), on_case):
        edges = mask.draw()
        found["attention"].append(_attention(mask, edges, pace))
        for product in PRODUCTS:
            found[product].append(_product(product, mask, edges, pace))
    return {name: {"cells": cells, "loss": loss_of_auto(cells)} for name, cells in found.items()}


def _attention(mask: Mask, edges: EdgeList, pace: Pace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shape = (mask.n_graphs, 1, mask.n, D_HEAD)
    query, key, value, cotangent = (torch.randn(shape, generator=generator) for _ in range(4))
    gate = torch.ones(edges.n_edges)
    leaves = [leaf.requires_grad_() for leaf in (query, key, value, gate)]

    def entry(backend: str) -> Entry:
        def step(fresh: EdgeList) -> tuple[Tensor, ...]:
            out = edge_attention(query, key, value, fresh, gate, backend=backend)
            return torch.autograd.grad(out, leaves, cotangent)

        return Entry(step, lambda: without_caches(edges))

    names = [name for name in available_backends() if name != "pyg" or edges.n_edges * D_HEAD <= MOST_MESSAGES]
    results = race({name: entry(name) for name in names}, pace, reference="dense")
    return _cell(mask, results, taken_by_auto(query, edges))


def taken_by_auto(tokens: Tensor, edges: EdgeList) -> str:
    """The name of the backend that ``backend="auto"`` chooses for these edges; nothing is computed.

    Args:
        tokens: ``(batch, heads, n, d)``, as queries, keys and values.
        edges: The mask.
    """
    called: list[str] = []

    def note(name: str) -> Any:
        def attend(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> Tensor:
            called.append(name)
            return torch.zeros_like(value)

        return attend

    originals = dict(dispatch.BACKENDS)
    try:
        dispatch.BACKENDS.update({name: note(name) for name in originals})
        edge_attention(tokens, tokens, tokens, edges)
    finally:
        dispatch.BACKENDS.update(originals)
    return called[0]


def _product(name: str, mask: Mask, edges: EdgeList, pace: Pace) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shape = (mask.n_graphs, 1, mask.n, WIDTH)
    query, key = (torch.rand(shape, generator=generator).requires_grad_() for _ in range(2))
    cotangent = torch.randn(edges.n_edges, generator=generator)
    ways = PRODUCTS[name]

    def entry(route: str) -> Entry:
        def step(fresh: EdgeList) -> tuple[Tensor, ...]:
            return torch.autograd.grad(ways[route](query, key, fresh), [query, key], cotangent)

        return Entry(step, lambda: without_caches(edges))

    results = race({route: entry(route) for route in ways}, pace, reference="dense")
    return _cell(mask, results, "edges")


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


def _cell(mask: Mask, results: dict[str, Any], auto: str) -> dict[str, Any]:
    best = min(results, key=lambda name: results[name]["ratio"])
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
