"""The loops of :mod:`sbmt.kernels.cpu` as PyTorch operators, with gradients and shapes.

Tensors have the shapes ``(batch, heads, n, …)``, masks are ``row_ptr`` and ``keys`` of an :class:`~sbmt.EdgeList`, and
results are float32, or float64 for float64 inputs. Each operator's plain twin is named where it is called.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.library import CustomOpDef, custom_op

from sbmt.types import not_compiled


@cache
def has_numba() -> bool:
    """Whether loops can be compiled; numba itself is imported by the first call of an operator."""
    return find_spec("numba") is not None and os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def can_run_on(device: torch.device) -> bool:
    """Whether the operators serve tensors on this device."""
    return device.type == "cpu" and has_numba()


def operator(function: Callable[..., Any]) -> CustomOpDef:
    """Registers a function of CPU tensors as ``sbmt::`` and its name.

    The kernel is entered without ``device_types="cpu"``, whose kernels import torch's compiler when they are first
    called, which takes as long as importing torch.
    """
    name = f"sbmt::{function.__name__}"
    defined = custom_op(name, function, mutates_args=(), device_types=())
    torch.library.impl(name, "cpu", not_compiled(function), lib=defined._lib)
    return defined


def array(tensor: Tensor) -> np.ndarray:
    """A CPU tensor's memory as an array; ``.numpy()`` would also forbid the tensor to be resized from then on."""
    return np.from_dlpack(tensor.detach().contiguous())


_pool: tuple[int, ThreadPoolExecutor] | None = None
_compiled: set[Any] = set()


def _forget_pool() -> None:
    global _pool
    _pool = None  # threads do not survive a fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def in_threads(function: Any, ranges: list[tuple[int, int]], *arguments: Any) -> list[Any]:
    """``function(start, stop, *arguments)`` for each range, by as many threads as torch uses; results in order."""
    types = function, *((x.dtype, x.ndim) if isinstance(x, np.ndarray) else type(x) for x in arguments)
    if types not in _compiled:
        from sbmt.kernels.cpu.compile import compile_for

        compile_for(function, (*ranges[0], *arguments))
        _compiled.add(types)
    if len(ranges) == 1:
        return [function(*ranges[0], *arguments)]
    global _pool
    n_threads = torch.get_num_threads()
    if _pool is None or _pool[0] != n_threads:
        _pool = n_threads, ThreadPoolExecutor(max(1, n_threads - 1), "sbmt")
    others = [_pool[1].submit(function, *some, *arguments) for some in ranges[1:]]
    return [function(*ranges[0], *arguments), *(other.result() for other in others)]


def ranges_of(costs: np.ndarray, least: float = 2048.0) -> list[tuple[int, int]]:
    """Ranges of rows, at most one for each thread, that cost about the same; one alone where all cost little.

    Args:
        costs: What the rows cost up to each of them, ascending from 0: one number more than rows.
        least: A range costs at least so much.
    """
    n_rows = len(costs) - 1
    n_ranges = int(max(1, min(torch.get_num_threads(), n_rows, costs[-1] // least)))
    inner = np.searchsorted(costs, costs[-1] * np.arange(1, n_ranges) / n_ranges)
    ends = [0, *(int(end) for end in inner), n_rows]
    return [(start, stop) for start, stop in pairwise(ends) if stop > start] or [(0, n_rows)]


def _sizes(query: Tensor, key: Tensor) -> tuple[int, int, int]:
    return query.shape[2], key.shape[2], query.shape[1]


def _arrays(*tensors: Tensor | None, like: Tensor) -> list[Any]:
    """As arrays of one row for each token or edge; nothing becomes an empty array of the type of ``like``."""
    given = (like.new_empty(0) if t is None else t for t in tensors)
    return [array(t.flatten(0, 2) if t.dim() == 4 else t) for t in given]


def _by_edges(row_ptr: Tensor, step: int = 1) -> list[tuple[int, int]]:
    """Ranges of rows, or of graphs of ``step`` rows, with about as many edges each; a row counts as one more."""
    rows = torch.arange(0, row_ptr.numel(), step, device="cpu")
    return ranges_of(array(row_ptr[::step] + rows))


def _by_tokens(tokens: Tensor) -> list[tuple[int, int]]:
    return ranges_of(8 * np.arange(tokens[..., 0].numel() + 1))


def _by_graphs(tokens: Tensor) -> list[tuple[int, int]]:
    return ranges_of(tokens.shape[2] * np.arange(tokens.shape[0] * tokens.shape[1] + 1))


def _draw(draw: Any, query: Tensor, key: Tensor, masks: list[Tensor | None], *arguments: Any) -> tuple[Tensor, Tensor]:
    """Calls a loop that draws, with the masks' arrays; returns ``row_ptr`` and ``keys``."""
    batch, heads, n_queries, _ = query.shape
    real = [
        array(torch.ones(batch, n, dtype=torch.bool, device="cpu") if mask is None else mask)
        for mask, n in zip(masks, (n_queries, key.shape[2]), strict=True)
    ]
    row_ptr = torch.zeros(batch * heads * n_queries + 1, dtype=torch.int64, device="cpu")
    ranges = ranges_of(16 * np.arange(row_ptr.numel()))
    keys = in_threads(draw, ranges, *arguments, *real, _sizes(query, key), array(row_ptr[1:]))
    torch.cumsum(row_ptr, 0, out=row_ptr)
    return row_ptr, torch.cat([torch.from_numpy(some) for some in keys])


def _fake_draw(query: Tensor) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    batch, heads, n_queries, _ = query.shape
    row_ptr = query.new_empty(batch * heads * n_queries + 1, dtype=torch.int64)
    return row_ptr, query.new_empty(n_edges, dtype=torch.int64)


@operator
def draw_exact(
    query: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None, is_poisson: bool, seed: int,
    first_example: int, reach: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """``row_ptr`` and ``keys`` of edges with rates ⟨query_i, key_j⟩, and of all pairs at most ``reach`` apart."""
    from sbmt.kernels.cpu import draw

    rest = is_poisson, seed, first_example, reach
    return _draw(draw.draw_exact, query, key, [query_mask, key_mask], *_arrays(query, key, like=query), *rest)


@draw_exact.register_fake
def _(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_draw(query)


@operator
def draw_crossed(
    query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, query_mask: Tensor | None,
    key_mask: Tensor | None, extra: float, seed: int, first_example: int, reach: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """:func:`draw_exact` under the Poisson link, from memberships in two parts of each partition."""
    from sbmt.kernels.cpu import draw

    q, w, p, v = _arrays(query_part, query_weight, part, weight, like=weight)
    rest = q, w, array(blocks), p, v, extra, seed, first_example, reach
    return _draw(draw.draw_crossed, query_part, part, [query_mask, key_mask], *rest)


@draw_crossed.register_fake
def _(query_part: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return _fake_draw(query_part)


@operator
def part_memberships(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The two parts of largest logit of each partition, int16, and their softmax, from ``(…, size, n_partitions)``."""
    from sbmt.kernels.cpu import fit

    shape = *logits.shape[:3], 2 * logits.shape[4]
    part, weight = logits.new_empty(shape, dtype=torch.int16), logits.new_empty(shape)
    arrays = array(logits.flatten(0, 2)), *_arrays(part, weight, like=weight)
    in_threads(fit.part_memberships, _by_tokens(part), *arrays)
    return part, weight


@operator
def part_memberships_backward(grad: Tensor, part: Tensor, weight: Tensor, size: int) -> Tensor:
    """Gradients of the logits."""
    from sbmt.kernels.cpu import fit

    out = weight.new_zeros(*weight.shape[:3], size, weight.shape[3] // 2)
    arrays = *_arrays(grad, part, weight, like=out), array(out.flatten(0, 2))
    in_threads(fit.part_memberships_backward, _by_tokens(part), *arrays)
    return out


def _fake_memberships(logits: Tensor) -> tuple[Tensor, Tensor]:
    shape = *logits.shape[:3], 2 * logits.shape[4]
    return logits.new_empty(shape, dtype=torch.int16), logits.new_empty(shape)


def _save_memberships(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output)
    ctx.size = inputs[0].shape[3]
    ctx.mark_non_differentiable(output[0])


part_memberships.register_fake(_fake_memberships)
part_memberships.register_autograd(
    lambda ctx, _, grad: part_memberships_backward(grad, *ctx.saved_tensors, ctx.size),
    setup_context=_save_memberships,
)
part_memberships_backward.register_fake(
    lambda grad, part, weight, size: weight.new_empty(*weight.shape[:3], size, weight.shape[3] // 2)
)


@operator
def cell_uniforms(row_ptr: Tensor, keys: Tensor, seed: int, first_example: int, n_queries: int, heads: int) -> Tensor:
    """A uniform for each edge, float64, that depends on its address alone."""
    from sbmt.kernels.cpu import attend as loops

    out = torch.empty(keys.shape, dtype=torch.float64, device="cpu")
    rest = seed, first_example, (n_queries, 0, heads)
    in_threads(loops.cell_uniforms, _by_edges(row_ptr), array(row_ptr), array(keys), *rest, array(out))
    return out


@cell_uniforms.register_fake
def _(row_ptr: Tensor, keys: Tensor, *rest: Any) -> Tensor:
    return keys.new_empty(keys.shape, dtype=torch.float64)


# --- attention along edges ---


@operator
def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, gate: Tensor | None, sink: Tensor | None,
    scale: Tensor | None, row_ptr: Tensor, keys: Tensor, is_score_rule: bool, has_weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Values ``(batch, heads, n_queries, d_value)`` and the edges' weights, empty unless ``has_weights``."""
    from sbmt.kernels.cpu import attend as loops

    out = value.new_empty(*query.shape[:3], value.shape[3])
    weights = value.new_empty(keys.shape if has_weights else 0)
    q, k, v, b, g, s, f, rows, edges = _arrays(query, key, value, bias, gate, sink, scale, row_ptr, keys, like=query)
    inputs = q, k, v, b, g, is_score_rule, s, f, rows, edges, _sizes(query, key)
    in_threads(loops.attend, _by_edges(row_ptr), *inputs, array(out.flatten(0, 2)), array(weights))
    return out, weights


@attend.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    out = value.new_empty(*query.shape[:3], value.shape[3])
    return out, value.new_empty(rest[5].shape if rest[-1] else 0)


@operator
def attend_backward(
    grad_out: Tensor, grad_weights: Tensor | None, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    gate: Tensor | None, sink: Tensor | None, scale: Tensor | None, row_ptr: Tensor, keys: Tensor, is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of query, key, value, bias, gate and sink; empty for those of the last three that are missing."""
    from sbmt.kernels.cpu import attend as loops

    batch, heads, n_queries, _ = query.shape
    grads = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (query, key, value)]
    of_edges = [query.new_empty(0 if t is None else keys.shape) for t in (bias, gate)]
    of_sink = query.new_zeros(0 if sink is None else batch * heads)
    q, k, v, b, g, s, f, rows, edges = _arrays(query, key, value, bias, gate, sink, scale, row_ptr, keys, like=query)
    inputs = q, k, v, b, g, is_score_rule, s, f, rows, edges, _sizes(query, key)
    outputs = _arrays(*grads, *of_edges, of_sink, like=query)
    in_threads(
        loops.attend_backward, _by_edges(row_ptr, n_queries), *_arrays(grad_out, grad_weights, like=query), *inputs,
        *outputs,
    )  # fmt: skip
    to_query, to_key, to_value = grads
    to_bias, to_gate = of_edges
    return to_query, to_key, to_value, to_bias, to_gate, of_sink if sink is None else of_sink.view(-1, heads).sum(0)


@attend_backward.register_fake
def _(grad_out: Tensor, grad_weights: Tensor | None, *inputs: Any) -> tuple[Tensor, ...]:
    query, *_ = given = inputs[:6]
    return tuple(query.new_empty(0 if t is None else t.shape) for t in given)


def _save_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.is_score_rule, _ = inputs
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)


def _attention_gradients(ctx: Any, grad_out: Tensor | None, grad_weights: Tensor | None) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    if grad_out is None:
        grad_out = tensors[2].new_zeros(*tensors[0].shape[:3], tensors[2].shape[3])
    grads = attend_backward(grad_out, grad_weights, *tensors, ctx.is_score_rule)
    given = zip(grads, tensors, strict=False)
    return *(None if tensor is None else grad for grad, tensor in given), *(None,) * 5


attend.register_autograd(_attention_gradients, setup_context=_save_attention)


# --- products and rates along edges ---


@operator
def edge_dot(query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor) -> Tensor:
    """⟨query_i, key_j⟩ for every edge (i, j)."""
    from sbmt.kernels.cpu import attend as loops

    out = query.new_empty(keys.shape)
    arrays = _arrays(query, key, row_ptr, keys, like=query)
    in_threads(loops.dots, _by_edges(row_ptr), *arrays, _sizes(query, key), array(out))
    return out


@operator
def edge_dot_backward(grad: Tensor, query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of query and key."""
    from sbmt.kernels.cpu import attend as loops

    to_query, to_key = (torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (query, key))
    arrays, outputs = _arrays(grad, query, key, row_ptr, keys, like=query), _arrays(to_query, to_key, like=query)
    in_threads(loops.dots_backward, _by_edges(row_ptr, query.shape[2]), *arrays, _sizes(query, key), *outputs)
    return to_query, to_key


@operator
def edge_rate(
    query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, row_ptr: Tensor,
    keys: Tensor,
) -> Tensor:  # fmt: skip
    """The rate of every edge, from memberships in two parts of each partition and the heads' blocks."""
    from sbmt.kernels.cpu import fit

    out = weight.new_empty(keys.shape)
    q, w, p, v, rows, edges = _arrays(query_part, query_weight, part, weight, row_ptr, keys, like=weight)
    mask = rows, edges, _sizes(query_part, part)
    in_threads(fit.edge_rate, _by_edges(row_ptr), q, w, array(blocks), p, v, *mask, array(out))
    return out


@operator
def edge_rate_backward(
    grad: Tensor, query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor,
    row_ptr: Tensor, keys: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of the queries' memberships, the blocks and the keys' memberships."""
    from sbmt.kernels.cpu import fit

    batch, heads = part.shape[:2]
    to_query, to_key = (torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (query_weight, weight))
    to_blocks = blocks.new_zeros(batch * heads, *blocks.shape[1:])
    g, q, w, p, v, rows, edges = _arrays(grad, query_part, query_weight, part, weight, row_ptr, keys, like=weight)
    mask = rows, edges, _sizes(query_part, part)
    outputs = *_arrays(to_query, like=weight), array(to_blocks), *_arrays(to_key, like=weight)
    in_threads(
        fit.edge_rate_backward, _by_edges(row_ptr, query_part.shape[2]), g, q, w, array(blocks), p, v, *mask, *outputs
    )
    return to_query, to_blocks.unflatten(0, (batch, heads)).sum(0), to_key


@operator
def pair_totals(part: Tensor, weight: Tensor, size: int) -> Tensor:
    """How much the tokens of each graph are in every pair of parts, ``(batch, heads, groups, size, size)``."""
    from sbmt.kernels.cpu import fit

    batch, heads, n, n_chosen = part.shape
    out = weight.new_zeros(batch * heads, n_chosen // 4, size, size)
    in_threads(fit.pair_totals, _by_graphs(part), *_arrays(part, weight, like=weight), n, size, array(out))
    return out.unflatten(0, (batch, heads))


@operator
def pair_totals_backward(grad: Tensor, part: Tensor, weight: Tensor, size: int) -> Tensor:
    """Gradients of the memberships."""
    from sbmt.kernels.cpu import fit

    out = torch.zeros_like(weight, memory_format=torch.contiguous_format)
    p, v, to_weight = _arrays(part, weight, out, like=weight)
    rest = p, v, part.shape[2], size, to_weight
    in_threads(fit.pair_totals_backward, _by_graphs(part), array(grad.flatten(0, 1)), *rest)
    return out


edge_dot.register_fake(lambda query, key, row_ptr, keys: query.new_empty(keys.shape))
edge_dot_backward.register_fake(lambda grad, query, key, *mask: (torch.empty_like(query), torch.empty_like(key)))
edge_rate.register_fake(lambda part, weight, blocks, *rest: weight.new_empty(rest[-1].shape))
edge_rate_backward.register_fake(
    lambda grad, part, query, blocks, _, key, *mask: (*(torch.empty_like(t) for t in (query, blocks, key)),)
)
pair_totals.register_fake(lambda part, w, size: w.new_empty(*part.shape[:2], part.shape[3] // 4, size, size))
pair_totals_backward.register_fake(lambda grad, part, weight, size: torch.empty_like(weight))


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
    ctx.rest = [x for x in inputs if not isinstance(x, Tensor)]


def _dot_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *edge_dot_backward(grad, *ctx.saved_tensors), None, None


def _rate_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    to_query, to_blocks, to_key = edge_rate_backward(grad, *ctx.saved_tensors)
    return None, to_query, to_blocks, None, to_key, None, None


def _total_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, pair_totals_backward(grad, *ctx.saved_tensors, *ctx.rest), None


edge_dot.register_autograd(_dot_gradients, setup_context=_save_inputs)
edge_rate.register_autograd(_rate_gradients, setup_context=_save_inputs)
pair_totals.register_autograd(_total_gradients, setup_context=_save_inputs)
