"""The operators of edges that were drawn by the Poisson law; there are kernels for the CPU only."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.operator import operator
from sbmt.kernels.structures import Mask

_REST = "Tensor row_ptr, Tensor keys, int n_queries, int n_keys, float exploration, int reach"


@operator(
    "sbmt::weigh",
    schema=f"(Tensor rate, {_REST}, float smallest) -> (Tensor, Tensor)",
    device_types="cpu",
)
def weigh(rate: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """The bias of every edge and the number of edges that every row expects, as :func:`weigh_edges` says.

    No gradient passes. Edges between tokens at most ``reach`` places apart are certain.
    """
    from sbmt.kernels.cpu import launch

    return launch.weigh(rate.contiguous(), Mask(*arguments[:4]), *arguments[4:])


@weigh.register_fake
def _(rate: Tensor, row_ptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rate), rate.new_empty(row_ptr.shape[0] - 1)


@operator("sbmt::gain", schema=f"(Tensor rate, Tensor weights, {_REST}) -> Tensor", device_types="cpu")
def gain(rate: Tensor, weights: Tensor, *arguments: Any) -> Tensor:
    """Σ_j a_ij ln(r_ij + δ) for every row, over its edges that are not certain; no gradient of a passes."""
    from sbmt.kernels.cpu import launch

    return launch.gain(rate.contiguous(), weights.contiguous(), Mask(*arguments[:4]), *arguments[4:])


@gain.register_fake
def _(rate: Tensor, weights: Tensor, row_ptr: Tensor, *rest: Any) -> Tensor:
    return rate.new_empty(row_ptr.shape[0] - 1)


@operator(
    "sbmt::gain_backward",
    schema=f"(Tensor grad, Tensor rate, Tensor weights, {_REST}) -> Tensor",
    device_types="cpu",
)
def gain_backward(grad: Tensor, rate: Tensor, weights: Tensor, *arguments: Any) -> Tensor:
    """The gradient of the rates."""
    from sbmt.kernels.cpu import launch

    mask = Mask(*arguments[:4])
    return launch.gain_backward(grad.contiguous(), rate.contiguous(), weights.contiguous(), mask, *arguments[4:])


@gain_backward.register_fake
def _(grad: Tensor, rate: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(rate)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.rest = inputs[4:]


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return gain_backward(grad, *ctx.saved_tensors, *ctx.rest), *(None,) * 7


gain.register_autograd(_differentiate, setup_context=_save)
