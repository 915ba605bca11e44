"""Attention by kernels along the rows of a mask: one pass over each row's edges, nothing of the size of all pairs."""

from typing import Any

import torch
from torch import Tensor

from sbmt.attention.inputs import GateRule
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.kernels.gpu import accumulator
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels


def attend_on_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
) -> Tensor:
    """Forward and backward over CSR rows, scores computed anew on the way back; see :func:`sbmt.edge_attention`.

    Cost: O(edges · d) time, O(edges + n · d) memory. 16-bit inputs are computed in float32. Differentiable once.
    """
    if any(t.device.type != "cpu" for t in (query, edges.keys)):
        raise SbmtError("tensors on the CPU", f"a query on {query.device}", 'use backend="auto" or "gpu"')
    dtype = accumulator(value)
    query, key, wide = query.to(dtype), key.to(dtype), value.to(dtype)
    return _attend_along(query, key, wide, edges, gate, gate_rule, weight_scale, use_gpu=False).to(value.dtype)


def attend_on_gpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
) -> Tensor:
    """The same on a GPU, with long rows shared among programs; see :func:`sbmt.edge_attention`.

    Cost: O(edges · d) time, O(edges + n · d) memory. 16-bit inputs are read as they are, and summed in float32.
    Differentiable once.
    """
    if not has_gpu_kernels(query.device) or query.device != edges.keys.device:
        do = 'use backend="auto", or move them to a GPU that Triton serves'
        raise SbmtError("tensors on one GPU", f"a query on {query.device}", do)
    return _attend_along(query, key, value, edges, gate, gate_rule, weight_scale, use_gpu=True)


def _attend_along(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
    *,
    use_gpu: bool,
) -> Tensor:
    flat = [t.flatten(0, 2).contiguous() for t in (query, key, value)]
    dtype = accumulator(value)
    none = flat[0].new_empty(0, dtype=dtype)
    flat += [none if t is None else t.to(dtype).contiguous() for t in (gate, weight_scale)]
    is_differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in flat)
    by_key = edges.by_key if is_differentiated else (edges.keys[:0],) * 3
    sizes = edges.shape[2], edges.shape[3]
    out, _ = _attend(*flat, edges.row_ptr, edges.keys, *by_key, *sizes, gate_rule == "score", use_gpu)
    return out.unflatten(0, edges.shape[:3])


@torch.library.custom_op("sbmt::attend", mutates_args=())
def _attend(
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
    """The output, flattened over (example, head, query), and the logarithm of each row's softmax denominator."""
    if use_gpu:
        from sbmt.kernels.gpu.rows.launch import attend as launch

        with torch.cuda.device_of(query):
            inputs = query, key, value, gate, weight_scale
            return launch(*inputs, (row_ptr, keys), (n_queries, n_keys), is_score_rule)
    from sbmt.kernels.cpu.attention import attend
    from sbmt.kernels.cpu.parallel import balanced_parts, in_parallel

    out = value.new_empty(query.shape[0], value.shape[1])
    log_total = query.new_empty(query.shape[0], dtype=torch.float64)  # float32 would lose digits of large scores
    parts = balanced_parts(row_ptr.numpy(), 2 * (key.shape[1] + value.shape[1]))
    arrays = (t.numpy() for t in (query, key, value, row_ptr, keys, gate, weight_scale))
    in_parallel(attend, parts, *arrays, is_score_rule, n_queries, n_keys, out.numpy(), log_total.numpy())
    return out, log_total


@_attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    log_total = query.new_empty(query.shape[0], dtype=torch.float64)
    return value.new_empty(query.shape[0], value.shape[1]), log_total


@torch.library.custom_op("sbmt::attend_backward", mutates_args=())
def _attend_backward(
    grad_out: Tensor,
    out: Tensor,
    log_total: Tensor,
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and gate."""
    if use_gpu:
        from sbmt.kernels.gpu.rows.launch import attend_backward as launch

        mask, by_key, counts = (row_ptr, keys), (column_ptr, queries, positions), (n_queries, n_keys)
        inputs = query, key, value, gate, weight_scale
        with torch.cuda.device_of(query):
            return launch(grad_out, out, log_total, *inputs, mask, by_key, counts, is_score_rule)
    from sbmt.kernels.cpu.attention import attend_backward
    from sbmt.kernels.cpu.parallel import balanced_parts, in_parallel
    from sbmt.kernels.cpu.products import sum_over_queries

    grads = [torch.empty_like(t) for t in (query, key, value, gate)]
    grad_query, grad_key, grad_value, grad_gate = (t.numpy() for t in grads)
    grad_score, weights = (query.new_empty(keys.shape).numpy() for _ in range(2))  # per edge
    rows = query, key, value, row_ptr, keys, gate, weight_scale
    arrays, sizes = [t.numpy() for t in rows], (is_score_rule, n_queries, n_keys)
    grad_rows = grad_out.contiguous().numpy()
    work = 2 * (key.shape[1] + value.shape[1])
    found = grad_query, grad_score, grad_gate, weights
    parts = balanced_parts(row_ptr.numpy(), work)
    in_parallel(attend_backward, parts, *arrays, *sizes, out.numpy(), log_total.numpy(), grad_rows, *found)
    columns = [t.numpy() for t in (column_ptr, queries, positions, row_ptr)]
    parts = balanced_parts(columns[0], work)
    in_parallel(sum_over_queries, parts, grad_score, arrays[0], *columns, n_queries, n_keys, grad_key)
    in_parallel(sum_over_queries, parts, weights, grad_rows, *columns, n_queries, n_keys, grad_value)
    return tuple(grads)  # type: ignore[return-value]


@_attend_backward.register_fake
def _(grad_out: Tensor, out: Tensor, log_total: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query, key, value, gate = (torch.empty_like(t) for t in rest[:4])
    return query, key, value, gate


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.n_queries, ctx.n_keys, ctx.is_score_rule, ctx.use_gpu = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        return (None,) * 14
    grads = _attend_backward(grad_out, *ctx.saved_tensors, ctx.n_queries, ctx.n_keys, ctx.is_score_rule, ctx.use_gpu)
    return *grads, *(None,) * 10


_attend.register_autograd(_differentiate, setup_context=_keep)
