"""Operators that multiply rows along the edges of a mask, for CPU and GPU kernels, with their gradients.

Rows of all graphs are flattened as in :class:`sbmt.kernels.structures.Mask`. The mask by key serves gradients alone,
and may be empty where none are needed.
"""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.structures import ByKey, Mask


@torch.library.custom_op("sbmt::edge_dot", mutates_args=())
def edge_dot(
    query: Tensor,
    key: Tensor,
    row_ptr: Tensor,
    keys: Tensor,
    column_ptr: Tensor,
    queries: Tensor,
    positions: Tensor,
    n_queries: int,
    n_keys: int,
    use_gpu: bool,
) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    mask = Mask(row_ptr, keys, n_queries, n_keys)
    if use_gpu:
        from sbmt.kernels.gpu.rows import launch

        with torch.cuda.device_of(query):
            return launch.dots(query, key, mask)
    from sbmt.kernels.cpu import products

    return products.edge_dots(query, key, mask)


@torch.library.custom_op("sbmt::edge_gate", mutates_args=())
def edge_gate(
    query: Tensor,
    key: Tensor,
    row_ptr: Tensor,
    keys: Tensor,
    column_ptr: Tensor,
    queries: Tensor,
    positions: Tensor,
    n_queries: int,
    n_keys: int,
    use_gpu: bool,
) -> Tensor:
    """Ones with the gradients of :func:`edge_dot`."""
    return query.new_ones(keys.shape)


@torch.library.custom_op("sbmt::edge_dot_backward", mutates_args=())
def edge_dot_backward(
    grad: Tensor, rows: list[Tensor], mask_and_by_key: list[Tensor], n_queries: int, n_keys: int, use_gpu: bool
) -> tuple[Tensor, Tensor]:
    """Σ_j g_ij key_j for every query i, and Σ_i g_ij query_i for every key j; ``rows`` are queries and keys."""
    query, key = rows
    row_ptr, keys, *columns = mask_and_by_key
    mask, by_key, grad = Mask(row_ptr, keys, n_queries, n_keys), ByKey(*columns), grad.contiguous()
    if use_gpu:
        from sbmt.kernels.gpu.rows import launch

        with torch.cuda.device_of(query):
            to_query = launch.sum_over_keys(grad, key, mask, query.dtype)
            return to_query, launch.sum_over_queries(grad, query, mask, by_key, key.dtype)
    from sbmt.kernels.cpu import products

    return products.sum_over_keys(grad, key, mask), products.sum_over_queries(grad, query, mask, by_key)


@edge_dot.register_fake
@edge_gate.register_fake
def _(query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor, *rest: Any) -> Tensor:
    return query.new_empty(keys.shape)


@edge_dot_backward.register_fake
def _(grad: Tensor, rows: list[Tensor], *rest: Any) -> tuple[Tensor, Tensor]:
    query, key = rows
    return torch.empty_like(query), torch.empty_like(key)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.n_queries, ctx.n_keys, ctx.use_gpu = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    query, key, *mask_and_by_key = ctx.saved_tensors
    grads = edge_dot_backward(grad, [query, key], mask_and_by_key, ctx.n_queries, ctx.n_keys, ctx.use_gpu)
    return *grads, *(None,) * 8


for _operator in (edge_dot, edge_gate):
    _operator.register_autograd(_differentiate, setup_context=_save)
