"""Dropout on attention weights, from one random number per edge."""

import torch
from torch import Tensor

from sbmt.counter_rng import Purpose, edge_words, to_uniform
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.operator import operator


def dropout_scale(edges: EdgeList, dropout: float, seed: int, first_example: int, dtype: torch.dtype) -> Tensor:
    """What each edge's weight is multiplied by: 0 with probability ``dropout``, else 1 / (1 − ``dropout``).

    An edge's number depends on its cell alone: it is the same whatever else is in the mask, and on every device.
    """
    uniform = _cell_uniforms(edges, seed, first_example)
    return (uniform >= dropout).to(dtype) / (1 - dropout)


def _cell_uniforms(edges: EdgeList, seed: int, first_example: int) -> Tensor:
    _, heads, n_queries, _ = edges.shape
    if can_run_on(edges.keys.device):
        return _uniforms_on_cpu(edges.row_ptr, edges.keys, seed, n_queries, heads, first_example)
    rows = edges.rows()
    graph = rows // n_queries
    address = (graph // heads + first_example, graph % heads, rows % n_queries, edges.keys)
    return to_uniform(edge_words(seed, Purpose.CELL, *address))


@operator("sbmt::cell_uniforms", device_types="cpu")
def _uniforms_on_cpu(
    row_ptr: Tensor, keys: Tensor, seed: int, n_queries: int, n_heads: int, first_example: int
) -> Tensor:
    from sbmt.kernels.cpu.philox import cell_uniforms
    from sbmt.kernels.cpu.threads.parallel import balanced_parts, in_parallel

    out = torch.empty(keys.shape, dtype=torch.float64)
    graph = row_ptr.numpy(), keys.numpy()
    in_parallel(
        cell_uniforms, balanced_parts(graph[0], 32), *graph, seed, n_queries, n_heads, first_example, out.numpy()
    )
    return out


@_uniforms_on_cpu.register_fake
def _(row_ptr: Tensor, keys: Tensor, seed: int, n_queries: int, n_heads: int, first_example: int) -> Tensor:
    return torch.empty(keys.shape, dtype=torch.float64)
