"""The operator that attends along a mask and fits the block model behind it; there are kernels for the CPU only."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.crossed import FACTORS
from sbmt.kernels.operator import operator, saved_backward
from sbmt.kernels.rows import attend_backward, repeat
from sbmt.kernels.structures import CrossedFactors, Mask


@operator(
    "sbmt::attend_and_fit",
    schema=f"(Tensor query, Tensor key, Tensor value, Tensor sink, Tensor weight_scale, {FACTORS}, Tensor row_ptr, "
    "Tensor keys, int n_queries, int n_keys, float exploration, int reach, float smallest, float edges_per_query) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def attend_and_fit(*arguments: Any) -> tuple[Tensor, ...]:
    r"""Attends along edges that were drawn by the Poisson law of crossed partitions, and fits these to the attention.

    Tokens are those of :func:`sbmt.kernels.draws.attend_drawn`, and so is what raises scores. Weights are multiplied by
    ``weight_scale``, a factor for each edge of each head, unless that has length 0. The loss is $\sum_{ij} r_{ij} - c
    \sum_{j \in M_i} a_{ij} \ln(r_{ij} + \delta)$, in which $a$, before it is multiplied, is the mean over the heads
    that share a graph, and the second sum leaves edges out between tokens at most ``reach`` places apart.

    Returns:
        Values, the loss, and for each graph how many edges it expects without exploration; then what the backward pass
        needs: the logarithms of denominators, by how much scores were raised, and the loss's gradients of the queries'
        weights, the blocks and the keys' weights. No gradient passes from the loss to tokens, nor from values to
        weights and blocks.
    """
    from sbmt.kernels.cpu import fit
    from sbmt.kernels.cpu.graphs import Tokens

    given = Tokens(*arguments[:4]), arguments[4], CrossedFactors(*arguments[5:10]), Mask(*arguments[10:14])
    return fit.attend_and_fit(*given, fit.Fit(*arguments[14:]))


@attend_and_fit.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    (query_weight, blocks, _, key_weight, _, keys, n_queries), n_rows = rest[3:10], query.shape[0]
    out, log_total = value.new_empty(n_rows, value.shape[1]), query.new_empty(n_rows, dtype=torch.float64)
    expected = blocks.new_empty(query_weight.shape[0] // n_queries)
    gradients = (torch.empty_like(t) for t in (query_weight, blocks, key_weight))
    return out, blocks.new_empty(()), expected, log_total, query.new_empty(keys.shape), *gradients


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)
    tensors, (ctx.n_queries, ctx.n_keys) = inputs[:12], inputs[12:14]
    ctx.save_for_backward(*tensors, output[0], *output[3:])


def _for_each_copy(row_ptr: Tensor, keys: Tensor, bias: Tensor, *sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    row_ptr, keys, source = repeat(row_ptr, keys, *sizes)
    return row_ptr, keys, bias.index_select(0, source)


def _differentiate(ctx: Any, grad_out: Tensor | None, grad_loss: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    query, key, value, sink, scale, *factors, row_ptr, keys, out, log_total, bias, of_query, of_blocks, of_key = (
        ctx.saved_tensors
    )
    of_tokens = of_sink = None
    if grad_out is not None:
        sizes, copies = (ctx.n_queries, ctx.n_keys), int(query.shape[0] // factors[1].shape[0])
        if copies > 1:
            row_ptr, keys, bias = _for_each_copy(row_ptr, keys, bias, *sizes, copies)
        none, by_key = query.new_empty(0), (keys[:0],) * 3
        inputs, rules = [query, key, value, none, bias, sink, scale], (True, False, False)
        given = [out, log_total, none], inputs, row_ptr, keys, *by_key, *sizes, *rules
        *of_tokens, _, _, of_sink = attend_backward(grad_out, none, *given)
    of_factors = (None,) * 3
    if grad_loss is not None:
        of_factors = saved_backward(grad_loss, [of_query, of_blocks, of_key], [factors[1], factors[2], factors[4]])
    to_query, to_blocks, to_key = of_factors
    return *(of_tokens or (None,) * 3), of_sink, None, None, to_query, to_blocks, None, to_key, *(None,) * 8


attend_and_fit.register_autograd(_differentiate, setup_context=_save)
