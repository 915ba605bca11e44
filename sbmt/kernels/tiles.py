"""The operator of attention over drawn tiles, for GPU kernels, with its gradients."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.gpu import accumulator
from sbmt.kernels.structures import Drawing, TileInputs

_INPUTS = ", ".join(f"Tensor {name}" for name in TileInputs._fields)
_DRAWING = (
    "int seed, int dropout_seed, int first_example, float exploration, int window, float dropout, "
    "bool is_poisson, bool is_score_rule"
)


@torch.library.custom_op(
    "sbmt::attend_tiles",
    mutates_args=(),
    schema=f"({_INPUTS}, Tensor n_pairs, {_DRAWING}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def attend_tiles(*arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values and density, and for the backward pass the denominators' logarithms to base 2 and the largest weights."""
    from sbmt.kernels.gpu.tiles import launch

    inputs, n_pairs, drawing = TileInputs(*arguments[:7]), arguments[7], Drawing(*arguments[8:])
    with torch.cuda.device_of(inputs.query):
        out, degrees, log_total, largest = launch.attend_tiles(inputs, drawing)
    density = degrees.sum(-1).to(inputs.query_rate.dtype) / n_pairs.clamp(min=1)[:, None]
    return out, density, log_total, largest


@attend_tiles.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, query_rate: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = accumulator(value)
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=dtype)
    row = query.new_empty(query.shape[:3], dtype=dtype)
    return out, query_rate.new_empty(query.shape[:2]), row, row.clone()


@torch.library.custom_op(
    "sbmt::attend_tiles_backward",
    mutates_args=(),
    schema=f"(Tensor grad_out, Tensor grad_density, Tensor[] results, Tensor[] inputs, Tensor n_pairs, {_DRAWING}) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def attend_tiles_backward(
    grad_out: Tensor, grad_density: Tensor, results: list[Tensor], inputs: list[Tensor], n_pairs: Tensor, *drawing: Any
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and the rate factors; ``results`` are all of the forward pass but the density."""
    from sbmt.kernels.gpu.tiles import launch

    given = TileInputs(*inputs), Drawing(*drawing)
    per_edge = grad_density / n_pairs.clamp(min=1)[:, None]
    with torch.cuda.device_of(grad_out):
        return launch.attend_tiles_backward(*given, results, grad_out, per_edge)


@attend_tiles_backward.register_fake
def _(
    grad_out: Tensor, grad_density: Tensor, results: list[Tensor], inputs: list[Tensor], *rest: Any
) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in inputs[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    out, _, log_total, largest = output
    ctx.save_for_backward(out, log_total, largest, *inputs[:8])
    ctx.drawing = inputs[8:]
    ctx.mark_non_differentiable(log_total, largest)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_out: Tensor | None, grad_density: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    if grad_out is None and grad_density is None:
        return (None,) * 16
    *saved, n_pairs = ctx.saved_tensors
    results, inputs = saved[:3], saved[3:]
    out, rates = results[0], inputs[3]
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grad_density = rates.new_zeros(out.shape[:2]) if grad_density is None else grad_density
    grads = attend_tiles_backward(grad_out, grad_density, results, inputs, n_pairs, *ctx.drawing)
    return *grads, *(None,) * 11


attend_tiles.register_autograd(_differentiate, setup_context=_save)
