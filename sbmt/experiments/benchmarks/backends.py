"""Suite ``backends``: every backend on the same masks, and how far the automatic choice is from the fastest."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sbmt.attention import available_backends, edge_attention
from sbmt.attention.dispatch import pick_backend
from sbmt.attention.inputs import EdgeTerms
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.progress import Track, untracked
from sbmt.graph.edges import EdgeList

D_HEAD = 32
MOST_EDGES = 2**22  # above which message passing is left out
MASKS = [
    (n_graphs, n, density)
    for n in (64, 256, 1024, 4096)
    for n_graphs in (1, 8, 64)
    for density in (1 / 2, 1 / 16, 1.0, 1 / 4, 1 / 64)
    if n_graphs * n**2 <= 2**24
]


def run(masks: Sequence[tuple[int, int, float]], pace: Pace, track: Track = untracked) -> dict[str, Any]:
    """Times forward and backward of every backend on masks in which all pairs have the same probability."""
    return {"attention": {"cells": [_measure(mask, pace) for mask in track(masks, description="backends")]}}


def _measure(mask: tuple[int, int, float], pace: Pace) -> dict[str, Any]:
    n_graphs, n, density = mask
    generator = torch.Generator().manual_seed(0)
    edges = EdgeList.from_dense(torch.rand(n_graphs, 1, n, n, generator=generator) < density)
    query, key, value, cotangent = (torch.randn(n_graphs, 1, n, D_HEAD, generator=generator) for _ in range(4))
    gate = torch.ones(edges.n_edges)
    leaves = [leaf.requires_grad_() for leaf in (query, key, value, gate)]

    def entry(backend: str) -> Entry:
        def step(fresh: EdgeList) -> tuple[Tensor, ...]:
            values = edge_attention(query, key, value, fresh, gate, backend=backend)
            return torch.autograd.grad(values, leaves, cotangent)

        return Entry(step, lambda: replace(edges))  # copies, without what edges keep for later calls

    names = [name for name in available_backends() if name != "pyg" or edges.n_edges <= MOST_EDGES]
    results = race({name: entry(name) for name in names}, pace, reference="dense")
    best, auto = min(results, key=lambda name: results[name]["ratio"]), pick_backend(edges, EdgeTerms(gate))
    return {"n_graphs": n_graphs, "n": n, "density": density, "best": best, "auto": auto, "results": results}
