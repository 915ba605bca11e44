"""The operator of attention over drawn tiles, for GPU kernels, with its gradients."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.operator import operator
from sbmt.kernels.structures import Drawing, TileInputs
from sbmt.precision import accumulator

_INPUTS = ", ".join(f"Tensor {name}" for name in TileInputs._fields)
_DRAWING = (
    "int seed, int dropout_seed, int first_example, float exploration, int window, float dropout, "
    "bool is_poisson, bool is_score_rule"
)


@operator(
    "sbmt::attend_tiles",
    schema=f"({_INPUTS}, Tensor n_pairs, {_DRAWING}) -> (Tensor, Tensor, Tensor)",
)
def attend_tiles(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Values and density, and for the backward pass the denominators' logarithms to base 2."""
    from sbmt.kernels.gpu.tiles import launch

    inputs, n_pairs, drawing = TileInputs(*arguments[:7]), arguments[7], Drawing(*arguments[8:])
    with torch.cuda.device_of(inputs.query):
        out, degrees, log_total = launch.attend_tiles(inputs, drawing)
    return out, degrees.sum(-1).to(inputs.query_rate.dtype) / n_pairs.clamp(min=1)[:, None], log_total


@attend_tiles.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, query_rate: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=accumulator(value))
    return out, query_rate.new_empty(query.shape[:2]), out.new_empty(query.shape[:3])


@operator(
    "sbmt::attend_tiles_backward",
    schema="(Tensor grad_out, Tensor grad_density, Tensor out, Tensor log_total, "
    f"{_INPUTS}, Tensor n_pairs, {_DRAWING}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def attend_tiles_backward(
    grad_out: Tensor, grad_density: Tensor, out: Tensor, log_total: Tensor, *arguments: Any
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and the rate factors."""
    from sbmt.kernels.gpu.tiles import launch

    inputs, n_pairs, drawing = TileInputs(*arguments[:7]), arguments[7], Drawing(*arguments[8:])
    per_edge = grad_density / n_pairs.clamp(min=1)[:, None]
    with torch.cuda.device_of(grad_out):
        return launch.attend_tiles_backward(inputs, drawing, out, log_total, grad_out, per_edge)


@attend_tiles_backward.register_fake
def _(grad_out: Tensor, grad_density: Tensor, out: Tensor, log_total: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in arguments[:5])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    out, _, log_total = output
    ctx.save_for_backward(out, log_total, *inputs[:8])
    ctx.drawing = inputs[8:]
    ctx.mark_non_differentiable(log_total)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_out: Tensor | None, grad_density: Tensor | None, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_out is None and grad_density is None:
        return (None,) * 16
    out, _, *inputs = saved = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grad_density = inputs[3].new_zeros(out.shape[:2]) if grad_density is None else grad_density
    return *attend_tiles_backward(grad_out, grad_density, *saved, *ctx.drawing), *(None,) * 11


attend_tiles.register_autograd(_differentiate, setup_context=_save)
