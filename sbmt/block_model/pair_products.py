"""Scalar products of query rows with key rows along given edges."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.graph.edges import EdgeList
from sbmt.kernels import rows as kernels
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.cutoffs import cutoffs
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.precision import full_precision

_GATHERED_AT_ONCE = 1 << 22  # numbers gathered per chunk and side


def edge_dot(
    query: Float[Tensor, "batch heads n_queries width"], key: Float[Tensor, "batch heads n_keys width"], edges: EdgeList
) -> Float[Tensor, " n_edges"]:
    r"""$\langle x_i, y_j \rangle$ for every edge (i, j), in EdgeList order.

    The plain twin is ``(query @ key.mT).flatten()[edges.cells()]``. Kernels follow the edges, on the CPU and on GPUs;
    on the CPU the twin runs where it is faster, in small masks (:mod:`sbmt.kernels.cutoffs`). Where there are no
    kernels, it runs if all pairs take less room than the rows of the edges, else these are gathered in chunks.

    Cost: O(edges · width) time; no memory beyond the result but for a bounded chunk.
    """
    if _takes_all_pairs("edge_dot", edges):
        return _dense_dot(query, key, edges)
    if _has_kernels(query):
        arguments = _flat(query, key, edges)
        return kernels.edge_dot(*arguments).to(query.dtype)
    if edges.cell_count <= edges.n_edges * query.shape[3]:
        return _dense_dot(query, key, edges)
    out: Tensor = _GatheredDot.apply(query.flatten(0, 2), key.flatten(0, 2), edges.rows(), edges.key_rows())
    return out


def edge_gate(
    query: Float[Tensor, "batch heads n_queries width"], key: Float[Tensor, "batch heads n_keys width"], edges: EdgeList
) -> Float[Tensor, " n_edges"]:
    """Ones with the gradient of :func:`edge_dot`: a straight-through gate whose product is never formed.

    The plain twin is ``straight_through_gate(edge_dot(query, key, edges))``.
    """
    if _has_kernels(query) and not _takes_all_pairs("edge_gate", edges):
        arguments = _flat(query, key, edges)
        return kernels.edge_gate(*arguments).to(query.dtype)
    product = _dense_dot(query, key, edges) if _takes_all_pairs("edge_gate", edges) else edge_dot(query, key, edges)
    return 1 + (product - product.detach())


def _dense_dot(query: Tensor, key: Tensor, edges: EdgeList) -> Tensor:
    dtype = torch.promote_types(query.dtype, torch.float32)
    with full_precision(query):
        return (query.to(dtype) @ key.to(dtype).mT).flatten()[edges.cells()].to(query.dtype)


def _takes_all_pairs(product: str, edges: EdgeList) -> bool:
    if not can_run_on(edges.keys.device):
        return False
    return cutoffs()[product].takes_all_pairs(edges.n_edges, edges.cell_count)


def _has_kernels(query: Tensor) -> bool:
    return can_run_on(query.device) or has_gpu_kernels(query.device)


def _flat(query: Tensor, key: Tensor, edges: EdgeList) -> tuple[Any, ...]:
    dtype = torch.promote_types(query.dtype, torch.float32)  # kernels know no 16-bit numbers
    rows = [t.to(dtype).flatten(0, 2).contiguous() for t in (query, key)]
    is_differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in rows)
    use_gpu = not can_run_on(query.device)
    by_key = edges.by_key if use_gpu and is_differentiated else (edges.keys[:0],) * 3
    return *rows, edges.row_ptr, edges.keys, *by_key, edges.shape[2], edges.shape[3], use_gpu


class _GatheredDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, rows, keys)
        if not rows.numel():
            return query.new_empty(0)
        chunks = zip(*_chunks(rows, keys, width=query.shape[1]), strict=True)
        return torch.cat([(query[r] * key[c]).sum(-1) for r, c in chunks])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        query, key, rows, keys = ctx.saved_tensors
        to_query, to_key = torch.zeros_like(query), torch.zeros_like(key)
        for r, c, g in zip(*_chunks(rows, keys, grads[0], width=query.shape[1]), strict=True):
            to_query.index_add_(0, r, key[c] * g[:, None])
            to_key.index_add_(0, c, query[r] * g[:, None])
        return to_query, to_key, None, None


def _chunks(*tensors: Tensor, width: int) -> list[tuple[Tensor, ...]]:
    return [t.split(max(1, _GATHERED_AT_ONCE // width)) for t in tensors]
