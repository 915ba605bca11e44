"""The operators of edges that were drawn by the Poisson law, for CPU and GPU kernels."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.operator import operator, saved_backward
from sbmt.kernels.rows import kernels_on
from sbmt.kernels.structures import Mask

_REST = "Tensor row_ptr, Tensor keys, int n_queries, int n_keys, float exploration, int reach"


@operator(
    "sbmt::weigh",
    schema=f"(Tensor rate, {_REST}, float smallest, bool use_gpu) -> (Tensor, Tensor)",
)
def weigh(rate: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """The bias of every edge and the number of edges that every graph expects, as :func:`weigh_edges` says.

    No gradient passes. Edges between tokens at most ``reach`` places apart are certain.
    """
    given = rate.contiguous(), Mask(*arguments[:4]), *arguments[4:-1]
    with torch.cuda.device_of(rate):
        return tuple(kernels_on(arguments[-1]).weigh(*given))


@weigh.register_fake
def _(rate: Tensor, row_ptr: Tensor, keys: Tensor, n_queries: int, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rate), rate.new_empty((row_ptr.shape[0] - 1) // n_queries)


@operator("sbmt::gain", schema=f"(Tensor rate, Tensor weights, {_REST}, bool use_gpu) -> (Tensor, Tensor)")
def gain(rate: Tensor, weights: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Σ_ij a_ij ln(r_ij + δ) over the edges that are not certain, and its gradient; none of a passes."""
    given = rate.contiguous(), weights.contiguous(), Mask(*arguments[:4]), *arguments[4:-1]
    with torch.cuda.device_of(rate):
        return tuple(kernels_on(arguments[-1]).gain(*given))


@gain.register_fake
def _(rate: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return rate.new_empty(()), torch.empty_like(rate)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(inputs[0], output[1])


def _differentiate(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    rate, of_rate = ctx.saved_tensors
    return None if grad is None else saved_backward(grad, [of_rate], [rate])[0], *(None,) * 8


gain.register_autograd(_differentiate, setup_context=_save)
