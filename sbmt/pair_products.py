"""Scalar products of query rows with key rows along given edges."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.edges import EdgeList

_GATHERED_AT_ONCE = 1 << 22  # numbers gathered per chunk and side


def edge_dot(
    query: Float[Tensor, "batch heads n_queries width"], key: Float[Tensor, "batch heads n_keys width"], edges: EdgeList
) -> Float[Tensor, " n_edges"]:
    r"""$\langle x_i, y_j \rangle$ for every edge (i, j), in EdgeList order.

    The plain twin is ``(query @ key.mT).flatten()[edges.cells()]``. It is also what runs where all pairs take less
    room than the gathered rows; elsewhere rows are gathered chunk by chunk, and again in the backward pass.

    Cost: O(edges · width) time; memory for min(all pairs, a bounded chunk).
    """
    if query[..., 0].numel() * key.shape[2] <= edges.n_edges * query.shape[3]:
        return (query @ key.mT).flatten()[edges.cells()]
    if edges.n_edges == 0:
        return (query.sum() + key.sum()) * torch.zeros(0, dtype=query.dtype, device=query.device)
    out: Tensor = _EdgeDot.apply(query.flatten(0, 2), key.flatten(0, 2), edges.rows(), edges.key_rows())
    return out


class _EdgeDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, rows: Tensor, keys: Tensor) -> Tensor:
        ctx.save_for_backward(query, key, rows, keys)
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
