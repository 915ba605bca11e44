"""The operators of block models whose clusters are crossed partitions; there are kernels for the CPU only."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.structures import CrossedFactors, Mask

_FACTORS = "Tensor rates, Tensor key_part, Tensor key_weight, int n_partitions"


@torch.library.custom_op("sbmt::choose_parts", mutates_args=(), device_types="cpu")
def choose_parts(nodes: Tensor, centres: Tensor, n_partitions: int, n_active: int) -> tuple[Tensor, Tensor]:
    """The ``n_active`` parts of largest product with each node in each partition, ascending, and their softmax.

    Nodes are ``(heads, rows, d)``, centres ``(heads, parts, d)``, the results ``(heads, rows, n_partitions ·
    n_active)``. No gradient passes: :func:`part_memberships` has it.
    """
    from sbmt.kernels.cpu import launch

    return launch.choose_parts(nodes, centres, n_partitions, n_active)


@choose_parts.register_fake
def _(nodes: Tensor, centres: Tensor, n_partitions: int, n_active: int) -> tuple[Tensor, Tensor]:
    weight = nodes.new_empty((*nodes.shape[:2], n_partitions * n_active))
    return torch.empty_like(weight, dtype=torch.int32), weight


@torch.library.custom_op("sbmt::part_memberships", mutates_args=(), device_types="cpu")
def part_memberships(nodes: Tensor, centres: Tensor, part: Tensor, weight: Tensor, n_partitions: int) -> Tensor:
    """The weights that were found, with their gradients."""
    return weight.clone()


@part_memberships.register_fake
def _(nodes: Tensor, centres: Tensor, part: Tensor, weight: Tensor, n_partitions: int) -> Tensor:
    return torch.empty_like(weight)


@torch.library.custom_op("sbmt::part_memberships_backward", mutates_args=(), device_types="cpu")
def part_memberships_backward(
    grad: Tensor, nodes: Tensor, centres: Tensor, part: Tensor, weight: Tensor, n_partitions: int
) -> tuple[Tensor, Tensor]:
    """Gradients of nodes and centres."""
    from sbmt.kernels.cpu import launch

    return launch.part_memberships_backward(grad.contiguous(), nodes, centres, part, weight, n_partitions)


@part_memberships_backward.register_fake
def _(grad: Tensor, nodes: Tensor, centres: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(nodes), torch.empty_like(centres)


def _save_memberships(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.n_partitions = inputs[4]


def _differentiate_memberships(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *part_memberships_backward(grad, *ctx.saved_tensors, ctx.n_partitions), None, None, None


part_memberships.register_autograd(_differentiate_memberships, setup_context=_save_memberships)


@torch.library.custom_op("sbmt::part_rates", mutates_args=(), device_types="cpu")
def part_rates(part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> Tensor:
    """Q̂ S of every partition: ``(graphs · n_queries, chosen)`` and ``(heads, partitions, s, s)``."""
    from sbmt.kernels.cpu import launch

    return launch.part_rates(part, weight, blocks, n_queries)


@part_rates.register_fake
def _(part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> Tensor:
    return weight.new_empty((weight.shape[0], blocks.shape[1] * blocks.shape[2]))


@torch.library.custom_op("sbmt::part_rates_backward", mutates_args=(), device_types="cpu")
def part_rates_backward(
    grad: Tensor, part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int
) -> tuple[Tensor, Tensor]:
    """Gradients of weights and blocks."""
    from sbmt.kernels.cpu import launch

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


_MASK = "Tensor row_ptr, Tensor keys, int n_queries, int n_keys"


@torch.library.custom_op(
    "sbmt::crossed_rates", mutates_args=(), schema=f"({_FACTORS}, {_MASK}) -> Tensor", device_types="cpu"
)
def crossed_rates(*arguments: Any) -> Tensor:
    """The rate of every edge (i, j), a sum over groups of the products of two partitions' rates."""
    from sbmt.kernels.cpu import launch

    return launch.crossed_rates(CrossedFactors(*arguments[:4]), Mask(*arguments[4:]))


@crossed_rates.register_fake
def _(*arguments: Any) -> Tensor:
    rates, keys = arguments[0], arguments[5]
    return rates.new_empty(keys.shape)


@torch.library.custom_op(
    "sbmt::crossed_rates_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_FACTORS}, {_MASK}) -> (Tensor, Tensor)",
    device_types="cpu",
)
def crossed_rates_backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    """Gradients of the queries' rates and the keys' weights."""
    from sbmt.kernels.cpu import launch

    return launch.crossed_rates_backward(grad.contiguous(), CrossedFactors(*arguments[:4]), Mask(*arguments[4:]))


@crossed_rates_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor]:
    rates, _, key_weight = arguments[:3]
    return torch.empty_like(rates), torch.empty_like(key_weight)


def _save_rates(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3], *inputs[4:6])
    ctx.numbers = inputs[3], *inputs[6:]


def _differentiate_rates(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    *factors, row_ptr, keys = ctx.saved_tensors
    n_partitions, *sizes = ctx.numbers
    rates, key = crossed_rates_backward(grad, *factors, n_partitions, row_ptr, keys, *sizes)
    return rates, None, key, *(None,) * 5


crossed_rates.register_autograd(_differentiate_rates, setup_context=_save_rates)


@torch.library.custom_op("sbmt::sum_of_crossed_rates", mutates_args=(), device_types="cpu")
def sum_of_crossed_rates(
    rates: Tensor, key_part: Tensor, key_weight: Tensor, n_partitions: int, n_graphs: int
) -> tuple[Tensor, Tensor]:
    """The sum of the rates of all pairs of each graph, and the sums over keys that its gradient needs."""
    from sbmt.kernels.cpu import launch

    return launch.sum_of_crossed_rates(CrossedFactors(rates, key_part, key_weight, n_partitions), n_graphs)


@sum_of_crossed_rates.register_fake
def _(rates: Tensor, key_part: Tensor, key_weight: Tensor, n_partitions: int, n_graphs: int) -> tuple[Tensor, Tensor]:
    size = rates.shape[1] // n_partitions
    return rates.new_empty(n_graphs), rates.new_empty(n_graphs, n_partitions // 2, size, size)


@torch.library.custom_op("sbmt::sum_of_crossed_rates_backward", mutates_args=(), device_types="cpu")
def sum_of_crossed_rates_backward(
    grad: Tensor, rates: Tensor, key_part: Tensor, key_weight: Tensor, n_partitions: int, total: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of the queries' rates and the keys' weights."""
    from sbmt.kernels.cpu import launch

    factors = CrossedFactors(rates, key_part, key_weight, n_partitions)
    return launch.sum_of_crossed_rates_backward(grad.contiguous(), factors, total)


@sum_of_crossed_rates_backward.register_fake
def _(grad: Tensor, rates: Tensor, key_part: Tensor, key_weight: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rates), torch.empty_like(key_weight)


def _save_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.n_partitions = inputs[3]
    ctx.mark_non_differentiable(output[1])


def _differentiate_sum(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    *factors, total = ctx.saved_tensors
    rates, key = sum_of_crossed_rates_backward(grad, *factors, ctx.n_partitions, total)
    return rates, None, key, None, None


sum_of_crossed_rates.register_autograd(_differentiate_sum, setup_context=_save_sum)
