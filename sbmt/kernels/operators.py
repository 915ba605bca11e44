"""The loops in ``sbmt/kernels/loops`` as PyTorch operators, with gradients and shape inference.

Tensors have shapes ``(batch, heads, n, …)``, masks are given by ``row_ptr`` and ``keys`` of an :class:`~sbmt.EdgeList`,
and results are float32, or float64 for float64 inputs. Each operator has a plain PyTorch version where it is called.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.library import Library, custom_op

from sbmt.errors import SbmtError
from sbmt.kernels.build import C_TYPES, compiler, library
from sbmt.types import is_fake, not_compiled

Count = Any  # an int, or a symbolic integer if shapes are dynamic
Costs = tuple[Count, Callable[[int], int]]  # a number of rows or graphs, and the cost of the first i of them
_KERNELS = Library("sbmt", "FRAGMENT")  # keeps the operators' CPU kernels registered


def can_run_on(device: torch.device) -> bool:
    """Returns whether the operators accept tensors on this device."""
    return device.type == "cpu" and compiler() is not None


class Ranges(NamedTuple):
    """Ranges of rows or graphs; range i runs from ``ends[i]`` to ``ends[i + 1]``."""

    ends: Tensor
    number: int


def ranges_of(costs: Costs, least: float = 2048.0) -> Ranges:
    """Divides rows into ranges of about equal cost, at least ``least`` each, with at most one range per thread."""
    n_rows, cost = costs
    number = int(max(1, min(torch.get_num_threads(), n_rows, cost(n_rows) // least)))
    inner = (bisect_left(range(n_rows), i * cost(n_rows) // number, key=cost) for i in range(1, number))
    return Ranges(torch.tensor([0, *inner, n_rows], device="cpu"), number)


def by_edges(row_ptr: Tensor, step: Count = 1) -> Costs:
    """Returns the costs of rows, or of graphs of ``step`` rows; a cost counts edges and rows."""
    return (row_ptr.numel() - 1) // step, lambda i: int(row_ptr[i * step]) + i * step


def by_number(number: Count, each: Count) -> Costs:
    """Returns the costs of ``number`` rows or graphs of equal cost."""
    return number, lambda i: each * i


def call(name: str, costs: Costs, *arguments: Any) -> None:
    """Calls a loop of :file:`loops/loops.h` on ranges of rows with these costs, unless its tensors have no data.

    ``arguments`` follow the ranges; a struct is passed as a tuple, and a result as a contiguous tensor.
    """
    if not any(is_fake(x) for x in _tensors(arguments)):
        _run(name, ranges_of(costs), *arguments)


def _tensors(arguments: Any) -> list[Tensor]:
    """Returns all tensors among the arguments and inside their tuples."""
    fields = (x for argument in arguments for x in (argument if isinstance(argument, tuple) else (argument,)))
    return [x for x in fields if isinstance(x, Tensor)]


def _dtype(arguments: Any) -> torch.dtype:
    """Returns the dtype for which loops are compiled, which is that of the arguments, float32 or float64."""
    return next((x.dtype for x in _tensors(arguments) if x.is_floating_point()), torch.float32)


def _run(name: str, *arguments: Any) -> None:
    ffi, loops = library(_dtype(arguments))
    loop, used = getattr(loops, name), []  # arguments must stay alive while the loop runs

    def in_c(value: Any) -> Any:
        if isinstance(value, Tensor):
            used.append(value := value.detach().contiguous())
            return ffi.cast(f"{C_TYPES[value.dtype]} *", value.data_ptr())
        return ffi.NULL if value is None else value

    given = []
    for kind, value in zip(ffi.typeof(loop).args, arguments, strict=True):
        if isinstance(value, tuple):
            used.append(value := ffi.new(kind, [in_c(field) for field in value]))
        given.append(in_c(value))
    loop(*given)


def operator(function: Callable[..., Any]) -> Any:
    """Registers a function of CPU tensors as an operator ``sbmt::…``, which computes only shapes for fake tensors.

    It is registered without ``device_types="cpu"``, since such kernels import torch's compiler on the first call, which
    takes as long as importing torch.
    """
    name = f"sbmt::{function.__name__}"
    defined = custom_op(name, function, mutates_args=(), device_types=())
    torch.library.impl(name, "cpu", not_compiled(function), lib=_KERNELS)
    defined.register_fake(function)
    defined.register_autograd(_refuse)  # unless gradients are registered later
    return defined


def _refuse(*_: Any) -> Any:
    do = "omit create_graph=True, or disable the loops by setting the environment variable CXX to an empty string"
    raise SbmtError(f"compiled loops do not support second derivatives: {do}")


def _mask(query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor) -> tuple[Any, ...]:
    """Returns the fields of the struct ``Mask``."""
    return query.shape[2], key.shape[2], query.shape[1], row_ptr, keys


def as_crossed(
    query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor
) -> tuple[Any, ...]:
    """Returns the fields of the struct ``Crossed``."""
    return query_part, part, query_weight, weight, blocks, part.shape[3] // 2, blocks.shape[2]


def _zeros(*tensors: Tensor) -> list[Tensor]:
    return [torch.zeros_like(t, memory_format=torch.contiguous_format) for t in tensors]


# --- drawing ---


def draw_by(
    name: str, model: list[Any], query: Tensor, key: Tensor, masks: list[Tensor | None], seed: int, first_example: int,
    reach: int, offset: Count, *kept: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Calls a loop that draws edges and returns ``row_ptr`` and ``keys``; with ``kept``, one thread draws each graph.

    Raises:
        MemoryError: If there is not enough memory.
    """
    batch, heads, n_queries, _ = query.shape
    n_keys = key.shape[2]
    row_ptr = torch.zeros(batch * heads * n_queries + 1, dtype=torch.int64, device="cpu")
    if is_fake(query):
        return row_ptr, row_ptr.new_empty(torch.library.get_ctx().new_dynamic_size())
    query_mask, key_mask = (
        torch.ones(batch, n, dtype=torch.bool, device="cpu") if mask is None else mask
        for mask, n in zip(masks, (n_queries, n_keys), strict=True)
    )
    drawing = n_queries, n_keys, heads, query_mask, key_mask, seed, first_example, reach, offset
    step, degrees = n_queries if any(kept) else 1, row_ptr[1:]
    ends, number = ranges_of(by_number(degrees.numel() // step, 16 * step))
    ranges = Ranges(step * ends, number)
    ffi, loops = library(_dtype(model))
    pointers = ffi.new("int64_t *[]", number)
    try:
        _run(name, ranges, *model, drawing, *kept, degrees, pointers)
        if ffi.NULL in list(pointers):
            raise MemoryError("out of memory: edges could not be drawn")
        keys = [torch.empty(0, dtype=torch.int64, device="cpu")]
        for i, pointer in enumerate(pointers):
            if n_bytes := 8 * int(degrees[ranges.ends[i] : ranges.ends[i + 1]].sum()):
                keys.append(torch.frombuffer(ffi.buffer(pointer, n_bytes), dtype=torch.int64))
        return torch.cumsum(row_ptr, 0, out=row_ptr), torch.cat(keys)
    finally:
        for pointer in pointers:
            loops.release(pointer)


@operator
def draw_exact(
    query: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None, is_poisson: bool, seed: int,
    first_example: int, reach: int, causal: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns ``row_ptr`` and ``keys`` of edges drawn at rates ⟨query_i, key_j⟩ and pairs at most ``reach`` apart."""
    model = [query, key, query.shape[3], is_poisson]
    masks = [query_mask, key_mask]
    offset = key.shape[2] - query.shape[2] if causal else -1
    return draw_by("draw_exact", model, query, key, masks, seed, first_example, reach, offset)


@operator
def draw_crossed(
    query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, query_mask: Tensor | None,
    key_mask: Tensor | None, extra: float, seed: int, first_example: int, reach: int, causal: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Draws like :func:`draw_exact` under the Poisson link, from memberships in two parts of each partition."""
    model = [as_crossed(query_part, query_weight, blocks, part, weight), extra]
    masks = [query_mask, key_mask]
    address = seed, first_example, reach
    if not causal:
        return draw_by("draw_crossed", model, query_part, part, masks, *address, -1)
    offset = part.shape[2] - query_part.shape[2]
    return draw_by("draw_causal", model, query_part, part, masks, *address, offset, None)


@operator
def choose_parts(clusters: Tensor, tokens: Tensor, n_partitions: int) -> tuple[Tensor, Tensor]:
    """Returns the two parts with the largest logits ⟨token, cluster⟩ per partition (int16), and the logits' softmax."""
    batch, heads, n, _ = tokens.shape
    shape = batch, heads, n, 2 * n_partitions
    part, weight = tokens.new_empty(shape, dtype=torch.int16), tokens.new_empty(shape)
    given = tokens, clusters, _choice(clusters, tokens, n_partitions)
    call("choose_parts", by_number(batch * heads * n, 8), *given, part, weight)
    return part, weight


@operator
def choose_parts_backward(
    grad: Tensor, clusters: Tensor, tokens: Tensor, part: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the gradients of clusters and tokens."""
    batch, heads, n, n_chosen = part.shape
    (to_tokens,) = _zeros(tokens)
    to_clusters = clusters.new_zeros(batch, *clusters.shape)
    given = grad, tokens, clusters, _choice(clusters, tokens, n_chosen // 2), part, weight
    call("choose_parts_backward", by_number(batch * heads, n), *given, to_tokens, to_clusters)
    return to_clusters.sum(0), to_tokens


def _choice(clusters: Tensor, tokens: Tensor, n_partitions: Count) -> tuple[Any, ...]:
    """Returns the struct ``Choice``."""
    return tokens.shape[2], tokens.shape[1], tokens.shape[3], n_partitions, clusters.shape[1] // n_partitions


def _save_choice(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:2], *output)
    ctx.mark_non_differentiable(output[0])


choose_parts.register_autograd(
    lambda ctx, _, grad: (*choose_parts_backward(grad, *ctx.saved_tensors), None), setup_context=_save_choice
)


@operator
def cell_uniforms(row_ptr: Tensor, keys: Tensor, seed: int, first_example: int, n_queries: int, heads: int) -> Tensor:
    """Returns a uniform float64 number for each edge, which depends only on the edge's address."""
    out = torch.empty(keys.shape, dtype=torch.float64, device="cpu")
    call("cell_uniforms", by_edges(row_ptr), (n_queries, 0, heads, row_ptr, keys), seed, first_example, out)
    return out


@operator
def near_edges(row_ptr: Tensor, keys: Tensor, n_queries: int, offset: int, reach: int) -> Tensor:
    """Returns which edges join tokens at most ``reach`` positions apart; the first query is at position ``offset``."""
    out = torch.empty(keys.shape, dtype=torch.bool, device="cpu")
    call("near_edges", by_edges(row_ptr), (n_queries, 0, 0, row_ptr, keys), offset, reach, out)
    return out


@operator
def weigh_edges(
    rate: Tensor, row_ptr: Tensor, keys: Tensor, n_queries: int, offset: int, reach: int, extra: float, smallest: float
) -> tuple[Tensor, Tensor]:
    """Returns −ln p of edges drawn at these rates, and each row's estimated expected number of edges."""
    bias, totals = rate.new_empty(keys.shape), rate.new_empty(row_ptr.numel() - 1)
    rest = offset, reach, extra, smallest, bias, totals
    call("weigh_edges", by_edges(row_ptr), rate, (n_queries, 0, 0, row_ptr, keys), *rest)
    return bias, totals


# --- attention along edges ---


@operator
def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, gate: Tensor | None, sink: Tensor | None,
    scale: Tensor | None, row_ptr: Tensor, keys: Tensor, is_score_rule: bool, has_weights: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Returns values ``(batch, heads, n_queries, d_value)`` and the edges' weights (empty unless ``has_weights``)."""
    inputs = query, key, value, bias, gate, sink, scale, query.shape[3], value.shape[3], is_score_rule
    out = value.new_empty(*query.shape[:3], value.shape[3])
    weights = value.new_empty(keys.shape if has_weights else 0)
    mask = _mask(query, key, row_ptr, keys)
    call("attend", by_edges(row_ptr), inputs, mask, out, weights if has_weights else None)
    return out, weights


@operator
def attend_backward(
    grad_out: Tensor, grad_weights: Tensor | None, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None,
    gate: Tensor | None, sink: Tensor | None, scale: Tensor | None, row_ptr: Tensor, keys: Tensor, is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Computes gradients of query, key, value, bias, gate and sink; those of a missing bias, gate or sink are empty."""
    inputs = query, key, value, bias, gate, sink, scale, query.shape[3], value.shape[3], is_score_rule
    batch, heads, n_queries, _ = query.shape
    to_query, to_key, to_value = _zeros(query, key, value)
    to_bias, to_gate = (query.new_empty(0 if t is None else keys.shape) for t in (bias, gate))
    to_sink = query.new_zeros(0 if sink is None else batch * heads)  # one per graph
    outputs = to_query, to_key, to_value, to_bias, to_gate, to_sink
    mask, costs = _mask(query, key, row_ptr, keys), by_edges(row_ptr, n_queries)
    call("attend_backward", costs, inputs, mask, grad_out, grad_weights, *outputs)
    return *outputs[:5], to_sink if sink is None else to_sink.view(-1, heads).sum(0)


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
    """Computes ⟨query_i, key_j⟩ for every edge (i, j)."""
    out = query.new_empty(keys.shape)
    mask = _mask(query, key, row_ptr, keys)
    call("edge_dot", by_edges(row_ptr), query, key, query.shape[3], mask, out)
    return out


@operator
def edge_dot_backward(grad: Tensor, query: Tensor, key: Tensor, row_ptr: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Computes gradients of query and key."""
    to_query, to_key = _zeros(query, key)
    rest = query.shape[3], _mask(query, key, row_ptr, keys), to_query, to_key
    call("edge_dot_backward", by_edges(row_ptr, query.shape[2]), grad, query, key, *rest)
    return to_query, to_key


@operator
def edge_rate(
    query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor, row_ptr: Tensor,
    keys: Tensor,
) -> Tensor:  # fmt: skip
    """Computes the rate of every edge from memberships in two parts of each partition and the heads' blocks."""
    out = weight.new_empty(keys.shape)
    model = as_crossed(query_part, query_weight, blocks, part, weight)
    call("edge_rate", by_edges(row_ptr), model, _mask(query_part, part, row_ptr, keys), out)
    return out


@operator
def edge_rate_backward(
    grad: Tensor, query_part: Tensor, query_weight: Tensor, blocks: Tensor, part: Tensor, weight: Tensor,
    row_ptr: Tensor, keys: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Computes gradients of the queries' memberships, the blocks and the keys' memberships."""
    batch, heads = part.shape[:2]
    to_query, to_key = _zeros(query_weight, weight)
    to_blocks = blocks.new_zeros(batch * heads, *blocks.shape[1:])
    model, mask = as_crossed(query_part, query_weight, blocks, part, weight), _mask(query_part, part, row_ptr, keys)
    costs = by_edges(row_ptr, query_part.shape[2])
    call("edge_rate_backward", costs, model, mask, grad, to_query, to_blocks, to_key)
    return to_query, to_blocks.unflatten(0, (batch, heads)).sum(0), to_key


@operator
def pair_totals(part: Tensor, weight: Tensor, size: int) -> Tensor:
    """Sums the memberships of each graph's tokens per pair of parts, ``(batch, heads, groups, size, size)``."""
    batch, heads, n, n_chosen = part.shape
    out = weight.new_zeros(batch, heads, n_chosen // 4, size, size)
    call("pair_totals", by_number(batch * heads, n), part, weight, n, n_chosen // 2, size, out)
    return out


@operator
def pair_totals_backward(grad: Tensor, part: Tensor, weight: Tensor, size: int) -> Tensor:
    """Computes gradients of the memberships."""
    batch, heads, n, n_chosen = part.shape
    (out,) = _zeros(weight)
    rest = part, weight, n, n_chosen // 2, size, out
    call("pair_totals_backward", by_number(batch * heads, n), grad, *rest)
    return out


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
