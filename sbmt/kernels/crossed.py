"""The operators of block models whose clusters are crossed partitions, for CPU and GPU kernels."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.operator import operator
from sbmt.kernels.rows import MASK, masks_of
from sbmt.kernels.structures import CrossedFactors, Mask


@operator(
    "sbmt::part_memberships",
    schema="(Tensor query, Tensor key, Tensor matrix, int n_partitions, int n_active) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def part_memberships(query: Tensor, key: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The softmax of each token's ``n_active`` largest logits in each partition, and whose they are, ascending.

    The logits of a token x are (x, 1) · matrix. Tokens are ``(batch, heads, n, width)``, and the matrix is ``(heads,
    width + 1, parts)``; memberships and the numbers of their parts are ``(batch, heads, n, n_partitions · n_active)``:
    both of queries, then both of keys.
    """
    from sbmt.kernels.cpu import launch

    return launch.part_memberships(query, key, *arguments)


@part_memberships.register_fake
def _(query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    memberships = (tokens.new_empty((*tokens.shape[:3], rest[-2] * rest[-1])) for tokens in (query, key))
    return tuple(t for found in memberships for t in (found, torch.empty_like(found, dtype=torch.int16)))


@operator(
    "sbmt::part_memberships_backward",
    schema="(Tensor grad_query, Tensor grad_key, Tensor query, Tensor key, Tensor matrix, Tensor[] memberships, "
    "int n_partitions, bool needs_tokens) -> (Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def part_memberships_backward(grad_query: Tensor, grad_key: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    """Gradients of queries and keys (of length 0 unless they are needed) and of the matrix."""
    from sbmt.kernels.cpu import launch

    return launch.part_memberships_backward((grad_query, grad_key), arguments[:2], *arguments[2:])


@part_memberships_backward.register_fake
def _(grad_query: Tensor, grad_key: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
    tokens, matrix, needs_tokens = arguments[:2], arguments[2], arguments[-1]
    of_tokens = (torch.empty_like(t) if needs_tokens else t.new_empty(0) for t in tokens)
    return *of_tokens, matrix.new_empty(matrix.shape)


def _save_memberships(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.n_partitions = inputs[3]
    ctx.set_materialize_grads(False)


def _differentiate_memberships(
    ctx: Any, of_query: Tensor | None, _: Tensor | None, of_key: Tensor | None, __: Tensor | None
) -> tuple[Tensor | None, ...]:
    if of_query is None and of_key is None:
        return (None,) * 5
    needs_tokens, saved = any(ctx.needs_input_grad[:2]), list(ctx.saved_tensors)
    of_query, of_key = (
        torch.zeros_like(t) if of is None else of for of, t in ((of_query, saved[3]), (of_key, saved[5]))
    )
    grads = part_memberships_backward(of_query, of_key, *saved[:3], saved[3:], ctx.n_partitions, needs_tokens)
    return *(grads[:2] if needs_tokens else (None, None)), grads[2], None, None


part_memberships.register_autograd(_differentiate_memberships, setup_context=_save_memberships)


@operator("sbmt::largest_parts")
def largest_parts(logits: Tensor, n_partitions: int, n_active: int) -> Tensor:
    """The numbers of each token's ``n_active`` largest logits of each partition, ascending, by a GPU."""
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(logits):
        return launch.largest(logits, n_partitions, n_active)


@largest_parts.register_fake
def _(logits: Tensor, n_partitions: int, n_active: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], n_partitions * n_active, dtype=torch.int16)


FACTORS = "Tensor query_part, Tensor query_weight, Tensor blocks, Tensor key_part, Tensor key_weight"
_MASK = "Tensor row_ptr, Tensor keys, int n_queries, int n_keys"


@operator("sbmt::crossed_rates", schema=f"({FACTORS}, {_MASK}) -> Tensor", device_types="cpu")
def crossed_rates(*arguments: Any) -> Tensor:
    """The rate of every edge (i, j), a sum over groups of the products of two partitions' rates."""
    from sbmt.kernels.cpu import launch

    return launch.crossed_rates(CrossedFactors(*arguments[:5]), Mask(*arguments[5:]))


@crossed_rates.register_fake
def _(*arguments: Any) -> Tensor:
    query_weight, keys = arguments[1], arguments[6]
    return query_weight.new_empty(keys.shape)


@operator(
    "sbmt::crossed_rates_backward",
    schema=f"(Tensor grad, {FACTORS}, {_MASK}) -> (Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def crossed_rates_backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries' weights, the blocks and the keys' weights."""
    from sbmt.kernels.cpu import launch

    return launch.crossed_rates_backward(grad.contiguous(), CrossedFactors(*arguments[:5]), Mask(*arguments[5:]))


@crossed_rates_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, query_weight, blocks, _, key_weight = arguments[:5]
    return torch.empty_like(query_weight), torch.empty_like(blocks), torch.empty_like(key_weight)


def _save_rates(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.sizes = inputs[7:]


def _differentiate_rates(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    query, blocks, key = crossed_rates_backward(grad, *ctx.saved_tensors, *ctx.sizes)
    return None, query, blocks, None, key, *(None,) * 4


crossed_rates.register_autograd(_differentiate_rates, setup_context=_save_rates)


@operator("sbmt::part_rates")
def part_rates(part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> Tensor:
    """Each query's rates to all parts, ``(graphs · n_queries, parts)``, by a GPU."""
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(weight):
        return launch.part_rates(part, weight, blocks, n_queries)


@part_rates.register_fake
def _(part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> Tensor:
    return weight.new_empty(part.shape[0], blocks.shape[1] * blocks.shape[2])


@operator("sbmt::part_rates_backward")
def part_rates_backward(
    grad: Tensor, part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and of the blocks."""
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(grad):
        return launch.part_rates_backward(grad.contiguous(), part, weight, blocks, n_queries)


@part_rates_backward.register_fake
def _(grad: Tensor, part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(weight), torch.empty_like(blocks)


def _save_part_rates(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.n_queries = inputs[3]


def _differentiate_part_rates(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, *part_rates_backward(grad, *ctx.saved_tensors, ctx.n_queries), None


part_rates.register_autograd(_differentiate_part_rates, setup_context=_save_part_rates)


_BY_PARTS = f"Tensor rate, Tensor part, Tensor weight, int n_partitions, {MASK}"


@operator("sbmt::rates_by_parts", schema=f"({_BY_PARTS}) -> Tensor")
def rates_by_parts(rate: Tensor, part: Tensor, weight: Tensor, n_partitions: int, *mask: Any) -> Tensor:
    """:func:`crossed_rates` by a GPU, from the queries' rates to all parts, ``(graphs · n_queries, parts)``."""
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(rate):
        return launch.rates_along(rate, part, weight, n_partitions, masks_of(*mask)[0])


@rates_by_parts.register_fake
def _(rate: Tensor, part: Tensor, weight: Tensor, n_partitions: int, *mask: Any) -> Tensor:
    return rate.new_empty(mask[1].shape)


@operator("sbmt::rates_by_parts_backward", schema=f"(Tensor grad, {_BY_PARTS}) -> (Tensor, Tensor)")
def rates_by_parts_backward(
    grad: Tensor, rate: Tensor, part: Tensor, weight: Tensor, n_partitions: int, *mask: Any
) -> tuple[Tensor, Tensor]:
    """Gradients of the rates to parts, and of the keys' weights."""
    from sbmt.kernels.gpu.crossed import launch

    with torch.cuda.device_of(grad):
        return launch.rates_backward(grad.contiguous(), rate, part, weight, n_partitions, *masks_of(*mask))


@rates_by_parts_backward.register_fake
def _(grad: Tensor, rate: Tensor, part: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rate), torch.empty_like(weight)


def _save_by_parts(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], *inputs[4:9])
    ctx.n_partitions, *ctx.sizes = inputs[3], *inputs[9:]


def _differentiate_by_parts(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    factors, mask = ctx.saved_tensors[:3], ctx.saved_tensors[3:]
    of_rate, of_weight = rates_by_parts_backward(grad, *factors, ctx.n_partitions, *mask, *ctx.sizes)
    return of_rate, None, of_weight, *(None,) * 8


rates_by_parts.register_autograd(_differentiate_by_parts, setup_context=_save_by_parts)


@operator("sbmt::pair_totals", device_types="cpu")
def pair_totals(part: Tensor, weight: Tensor, n_partitions: int, size: int, n_graphs: int) -> Tensor:
    """How much the tokens of each graph are in every pair of parts of each group, ``(graphs, g, s, s)``."""
    from sbmt.kernels.cpu import launch

    return launch.pair_totals(part, weight, n_partitions, size, n_graphs)


@pair_totals.register_fake
def _(part: Tensor, weight: Tensor, n_partitions: int, size: int, n_graphs: int) -> Tensor:
    return weight.new_empty(n_graphs, n_partitions // 2, size, size)


@operator("sbmt::pair_totals_backward", device_types="cpu")
def pair_totals_backward(grad: Tensor, part: Tensor, weight: Tensor, n_partitions: int) -> Tensor:
    """The gradient of the weights."""
    from sbmt.kernels.cpu import launch

    return launch.pair_totals_backward(grad.contiguous(), part, weight, n_partitions)


@pair_totals_backward.register_fake
def _(grad: Tensor, part: Tensor, weight: Tensor, n_partitions: int) -> Tensor:
    return torch.empty_like(weight)


def _save_totals(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.n_partitions = inputs[2]


def _differentiate_totals(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, pair_totals_backward(grad, *ctx.saved_tensors, ctx.n_partitions), None, None, None


pair_totals.register_autograd(_differentiate_totals, setup_context=_save_totals)
