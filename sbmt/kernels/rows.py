"""The operators along the rows of a mask, for CPU and GPU kernels: attention, products along edges, and masks.

Rows of all graphs are flattened as in :class:`sbmt.kernels.structures.Mask`. Only gradients on a GPU need the mask by
key, which may be empty elsewhere.
"""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.operator import operator
from sbmt.kernels.structures import AttentionInputs, AttentionResults, ByKey, Mask
from sbmt.precision import accumulator


def kernels_on(use_gpu: bool) -> Any:
    """The module that launches kernels; both have the functions that are called here."""
    if use_gpu:
        from sbmt.kernels.gpu.rows import launch as on_gpu

        return on_gpu
    from sbmt.kernels.cpu import launch as on_cpu

    return on_cpu


MASK = "Tensor row_ptr, Tensor keys, Tensor column_ptr, Tensor queries, Tensor positions, int n_queries, int n_keys"


def masks_of(
    row_ptr: Tensor, keys: Tensor, column_ptr: Tensor, queries: Tensor, positions: Tensor, n_queries: int, n_keys: int
) -> tuple[Mask, ByKey]:
    """A mask, and its edges by key, from an operator's arguments of those names."""
    return Mask(row_ptr, keys, n_queries, n_keys), ByKey(column_ptr, queries, positions)


# --- attention ---


@operator(
    "sbmt::attend",
    schema="(Tensor query, Tensor key, Tensor value, Tensor gate, Tensor bias, Tensor sink, Tensor weight_scale, "
    f"{MASK}, bool is_score_rule, bool return_weights, bool use_gpu) -> (Tensor, Tensor, Tensor)",
)
def attend(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of :class:`~sbmt.kernels.structures.AttentionResults`."""
    *_, is_score_rule, return_weights, use_gpu = arguments
    inputs, (mask, _) = AttentionInputs(*arguments[:7]), masks_of(*arguments[7:14])
    with torch.cuda.device_of(inputs.query):
        return tuple(kernels_on(use_gpu).attend(inputs, mask, is_score_rule, return_weights))


@attend.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    (query, _, value), keys, return_weights = arguments[:3], arguments[8], arguments[-2]
    log_total = query.new_empty(query.shape[0], dtype=torch.float64)
    weights = query.new_empty(keys.shape if return_weights else 0, dtype=accumulator(value))
    return value.new_empty(query.shape[0], value.shape[1]), log_total, weights


@operator(
    "sbmt::attend_backward",
    schema="(Tensor grad_out, Tensor grad_weights, Tensor[] results, Tensor[] inputs, "
    f"{MASK}, bool is_score_rule, bool needs_bias, bool use_gpu) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def attend_backward(
    grad_out: Tensor, grad_weights: Tensor, results: list[Tensor], inputs: list[Tensor], *rest: Any
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value, gate, bias (of length 0 unless it is needed) and sink.

    ``grad_weights`` of length 0 stands for zeros.
    """
    *mask, is_score_rule, needs_bias, use_gpu = rest
    given = AttentionResults(*results), AttentionInputs(*inputs), *masks_of(*mask), is_score_rule, needs_bias
    with torch.cuda.device_of(grad_out):
        return tuple(kernels_on(use_gpu).attend_backward(grad_out.contiguous(), grad_weights.contiguous(), *given))


@attend_backward.register_fake
def _(
    grad_out: Tensor, grad_weights: Tensor, results: list[Tensor], inputs: list[Tensor], *rest: Any
) -> tuple[Tensor, ...]:
    query, key, value, gate, bias, sink = (torch.empty_like(t) for t in inputs[:6])
    return query, key, value, gate, bias if rest[-2] else bias.new_empty(0), sink


def _save_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *ctx.sizes_and_rule, _, ctx.use_gpu = inputs[12:]
    out, log_total, weights = output
    weights = weights if ctx.use_gpu else weights.new_empty(0)  # the CPU computes them again
    ctx.save_for_backward(out, log_total, weights, *inputs[:12])
    ctx.set_materialize_grads(False)


def _differentiate_attention(
    ctx: Any, grad_out: Tensor | None, _: Tensor | None, grad_weights: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_out is None and grad_weights is None:
        return (None,) * 17
    saved, needs_bias = list(ctx.saved_tensors), ctx.needs_input_grad[4]
    out, _, weights = results = saved[:3]
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grad_weights = weights.new_empty(0) if grad_weights is None else grad_weights
    rest = *saved[10:], *ctx.sizes_and_rule, needs_bias, ctx.use_gpu
    query, key, value, gate, bias, sink = attend_backward(grad_out, grad_weights, results, saved[3:10], *rest)
    return query, key, value, gate, bias if needs_bias else None, sink, *(None,) * 11


attend.register_autograd(_differentiate_attention, setup_context=_save_attention)


# --- products along edges ---

_PRODUCT = f"(Tensor query, Tensor key, {MASK}, bool use_gpu) -> Tensor"


@operator("sbmt::edge_dot", schema=_PRODUCT)
def edge_dot(query: Tensor, key: Tensor, *rest: Any) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    *mask, use_gpu = rest
    with torch.cuda.device_of(query):
        out: Tensor = kernels_on(use_gpu).dots(query, key, masks_of(*mask)[0])
    return out


@operator("sbmt::edge_gate", schema=_PRODUCT)
def edge_gate(query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor, *rest: Any) -> Tensor:
    """Ones with the gradients of :func:`edge_dot`."""
    return query.new_ones(keys.shape)


@operator(
    "sbmt::edge_dot_backward",
    schema=f"(Tensor grad, Tensor query, Tensor key, {MASK}, bool use_gpu) -> (Tensor, Tensor)",
)
def edge_dot_backward(grad: Tensor, query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Σ_j g_ij key_j for every query i, and Σ_i g_ij query_i for every key j."""
    *both, use_gpu = rest
    (mask, by_key), grad, kernels = masks_of(*both), grad.contiguous(), kernels_on(use_gpu)
    with torch.cuda.device_of(query):
        return kernels.sum_over_keys(grad, key, mask), kernels.sum_over_queries(grad, query, mask, by_key)


@edge_dot_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(query), torch.empty_like(key)


def _save_products(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.sizes = inputs[7:]


def _differentiate_products(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *edge_dot_backward(grad, *ctx.saved_tensors, *ctx.sizes), *(None,) * 8


for _operator in (edge_dot, edge_gate):
    _operator.register_fake(lambda query, key, row_ptr, keys, *rest: query.new_empty(keys.shape))
    _operator.register_autograd(_differentiate_products, setup_context=_save_products)


# --- masks ---


@operator("sbmt::transpose", device_types="cpu")
def transpose(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    """The fields of :class:`~sbmt.kernels.structures.ByKey`."""
    from sbmt.kernels.cpu import launch

    column_ptr, queries, positions = launch.transpose(Mask(row_ptr, keys, n_queries, n_keys))
    return column_ptr, queries, positions


@transpose.register_fake
def _(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    n_graphs = (row_ptr.numel() - 1) // n_queries
    int32 = keys.new_empty(keys.shape, dtype=torch.int32)
    return row_ptr.new_empty(n_graphs * n_keys + 1), int32, int32.clone()


@operator("sbmt::merge_rows", device_types="cpu")
def merge_rows(first_ptr: Tensor, first_keys: Tensor, second_ptr: Tensor, second_keys: Tensor) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of the edges that are in either mask."""
    from sbmt.kernels.cpu import launch

    return launch.merge(first_ptr, first_keys, second_ptr, second_keys)


@merge_rows.register_fake
def _(first_ptr: Tensor, first_keys: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return torch.empty_like(first_ptr), first_keys.new_empty(n_edges)


@operator("sbmt::with_window", device_types="cpu")
def with_window(
    row_ptr: Tensor,
    keys: Tensor,
    n_queries: int,
    n_keys: int,
    reach: int,
    heads: int,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of these edges and those between real tokens at most ``reach`` places apart."""
    from sbmt.kernels.cpu import launch

    return launch.with_window(Mask(row_ptr, keys, n_queries, n_keys), reach, heads, query_mask, key_mask)


@with_window.register_fake
def _(row_ptr: Tensor, keys: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return torch.empty_like(row_ptr), keys.new_empty(n_edges)


@operator("sbmt::repeat", device_types="cpu")
def repeat(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of each graph as often as it has heads, and which edge each is a copy of."""
    from sbmt.kernels.cpu import launch

    return launch.repeat(Mask(row_ptr, keys, n_queries, n_keys), heads)


@repeat.register_fake
def _(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    copies = keys.new_empty(heads * keys.shape[0])
    return row_ptr.new_empty(heads * (row_ptr.shape[0] - 1) + 1), copies, torch.empty_like(copies)


@operator("sbmt::near", device_types="cpu")
def near(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, reach: int) -> Tensor:
    """Whether each edge joins tokens at most ``reach`` places apart."""
    from sbmt.kernels.cpu import launch

    return launch.near(Mask(row_ptr, keys, n_queries, n_keys), reach)


@near.register_fake
def _(row_ptr: Tensor, keys: Tensor, n_queries: int, n_keys: int, reach: int) -> Tensor:
    return keys.new_empty(keys.shape, dtype=torch.bool)
