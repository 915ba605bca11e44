"""Operators on CSR masks, for CPU and GPU kernels."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.structures import Mask


@torch.library.custom_op("sbmt::transpose", mutates_args=())
def transpose(
    row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, use_gpu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of :class:`~sbmt.kernels.structures.ByKey`."""
    mask = Mask(row_ptr, keys, n_queries, n_keys)
    if use_gpu:
        from sbmt.kernels.gpu.rows import transposing

        with torch.cuda.device_of(keys):
            return tuple(transposing.transpose(mask))  # type: ignore[return-value]
    from sbmt.kernels.cpu import masks

    return tuple(masks.transpose(mask))  # type: ignore[return-value]


@transpose.register_fake
def _(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, use_gpu: bool) -> tuple[Tensor, Tensor, Tensor]:
    n_graphs = (row_ptr.numel() - 1) // n_queries
    int32 = keys.new_empty(keys.shape, dtype=torch.int32)
    return row_ptr.new_empty(n_graphs * n_keys + 1), int32, int32.clone()


@torch.library.custom_op("sbmt::merge_rows", mutates_args=(), device_types="cpu")
def merge_rows(first_ptr: Tensor, first_keys: Tensor, second_ptr: Tensor, second_keys: Tensor) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges that are in either mask."""
    from sbmt.kernels.cpu import masks

    return masks.merge((first_ptr, first_keys), (second_ptr, second_keys))


@merge_rows.register_fake
def _(first_ptr: Tensor, first_keys: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return torch.empty_like(first_ptr), first_keys.new_empty(n_edges)
