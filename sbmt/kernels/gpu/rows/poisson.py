"""What edges that were drawn by the Poisson law weigh, and how well rates explain where attention goes, row by row."""

import triton.language as tl

from sbmt.kernels.gpu.rows.blocks import edges_of
from sbmt.kernels.gpu.tiles.forward import poisson_link
from sbmt.kernels.gpu.toolchain import kernel


@kernel
def weigh(
    rate, row_ptr, keys, delta_in, bias, expected, n_queries, reach, TINY: tl.constexpr, SMALLEST: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    """Fills the biases of a row's edges, −ln max(p, ``SMALLEST``), and the sum of (1 − e^−r) / p.

    p = 1 − e^−(r + δ), and 1 for edges between tokens at most ``reach`` places apart.
    """
    row = tl.program_id(0).to(tl.int64)
    first, n_edges = edges_of(row_ptr, row)
    delta = tl.load(delta_in)
    total = tl.zeros((EDGES,), delta.dtype)  # summed over its edges at the end
    for start in range(0, n_edges, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < n_edges
        r = tl.load(rate + first + edges, is_edge, other=0.0)
        distance = tl.load(keys + first + edges, is_edge, other=0) - row % n_queries
        p = tl.where(tl.abs(distance) <= reach, 1.0, poisson_link(r + delta))
        tl.store(bias + first + edges, -tl.log(tl.maximum(p, SMALLEST)), is_edge)
        total += poisson_link(r) / tl.maximum(p, TINY)
    tl.store(expected + row, tl.sum(total, 0))


@kernel
def gain(
    rate, weights, row_ptr, keys, delta_in, gained, to_rate, n_queries, reach, TINY: tl.constexpr, EDGES: tl.constexpr
):
    """Computes Σ_j a_ij ln(r_ij + δ) over a row's edges that are not certain, and its gradients."""
    row = tl.program_id(0).to(tl.int64)
    first, n_edges = edges_of(row_ptr, row)
    delta = tl.load(delta_in)
    total = tl.zeros((EDGES,), delta.dtype)  # summed over its edges at the end
    for start in range(0, n_edges, EDGES):
        edges = start + tl.arange(0, EDGES)
        is_edge = edges < n_edges
        x = tl.load(rate + first + edges, is_edge, other=0.0) + delta
        a = tl.load(weights + first + edges, is_edge, other=0.0)
        distance = tl.load(keys + first + edges, is_edge, other=0) - row % n_queries
        a = tl.where(tl.abs(distance) <= reach, 0.0, a)
        total += a * tl.log(tl.maximum(x, TINY))
        tl.store(to_rate + first + edges, tl.where(x >= TINY, a / tl.maximum(x, TINY), 0.0), is_edge)
    tl.store(gained + row, tl.sum(total, 0))
