"""The operator of attention along the rows of a mask, for CPU and GPU kernels, with its gradients.

Rows of all graphs are flattened as in :class:`sbmt.kernels.structures.Mask`. The mask by key serves gradients alone,
and may be empty where none are needed.
"""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, Mask


@torch.library.custom_op("sbmt::attend", mutates_args=())
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    gate: Tensor,
    weight_scale: Tensor,
    row_ptr: Tensor,
    keys: Tensor,
    column_ptr: Tensor,
    queries: Tensor,
    positions: Tensor,
    n_queries: int,
    n_keys: int,
    is_score_rule: bool,
    use_gpu: bool,
) -> tuple[Tensor, Tensor]:
    """The fields of :class:`~sbmt.kernels.structures.AttentionResults`."""
    inputs = AttentionInputs(query, key, value, gate, weight_scale)
    mask = Mask(row_ptr, keys, n_queries, n_keys)
    if use_gpu:
        from sbmt.kernels.gpu.rows import launch

        with torch.cuda.device_of(query):
            return tuple(launch.attend(inputs, mask, is_score_rule))  # type: ignore[return-value]
    from sbmt.kernels.cpu import attention

    return tuple(attention.attend(inputs, mask, is_score_rule))  # type: ignore[return-value]


@torch.library.custom_op("sbmt::attend_backward", mutates_args=())
def attend_backward(
    grad_out: Tensor,
    results: list[Tensor],
    inputs: list[Tensor],
    mask_and_by_key: list[Tensor],
    n_queries: int,
    n_keys: int,
    is_score_rule: bool,
    use_gpu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and gate."""
    row_ptr, keys, *columns = mask_and_by_key
    mask, by_key = Mask(row_ptr, keys, n_queries, n_keys), ByKey(*columns)
    given = grad_out.contiguous(), AttentionResults(*results), AttentionInputs(*inputs), mask, by_key, is_score_rule
    if use_gpu:
        from sbmt.kernels.gpu.rows import launch

        with torch.cuda.device_of(grad_out):
            return launch.attend_backward(*given)
    from sbmt.kernels.cpu import attention

    return attention.attend_backward(*given)


@attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    log_total = query.new_empty(query.shape[0], dtype=torch.float64)
    return value.new_empty(query.shape[0], value.shape[1]), log_total


@attend_backward.register_fake
def _(
    grad_out: Tensor, results: list[Tensor], inputs: list[Tensor], *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value, gate = (torch.empty_like(t) for t in inputs[:4])
    return query, key, value, gate


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_queries, ctx.n_keys, ctx.is_score_rule, ctx.use_gpu = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        return (None,) * 14
    saved = list(ctx.saved_tensors)
    results, inputs, mask_and_by_key = saved[:2], saved[2:7], saved[7:]
    rules = ctx.n_queries, ctx.n_keys, ctx.is_score_rule, ctx.use_gpu
    return *attend_backward(grad_out, results, inputs, mask_and_by_key, *rules), *(None,) * 10


attend.register_autograd(_differentiate, setup_context=_save)
