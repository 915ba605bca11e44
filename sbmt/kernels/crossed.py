"""The operators of block models whose clusters are crossed partitions; there are kernels for the CPU only."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.structures import CrossedFactors, Mask


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
    nodes, centres, part, _, ctx.n_partitions = inputs
    ctx.save_for_backward(nodes, centres, part, output)  # and not what it is a copy of


def _differentiate_memberships(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *part_memberships_backward(grad, *ctx.saved_tensors, ctx.n_partitions), None, None, None


part_memberships.register_autograd(_differentiate_memberships, setup_context=_save_memberships)


FACTORS = "Tensor query_part, Tensor query_weight, Tensor blocks, Tensor key_part, Tensor key_weight"
_MASK = "Tensor row_ptr, Tensor keys, int n_queries, int n_keys"


@torch.library.custom_op(
    "sbmt::crossed_rates", mutates_args=(), schema=f"({FACTORS}, {_MASK}) -> Tensor", device_types="cpu"
)
def crossed_rates(*arguments: Any) -> Tensor:
    """The rate of every edge (i, j), a sum over groups of the products of two partitions' rates."""
    from sbmt.kernels.cpu import launch

    return launch.crossed_rates(CrossedFactors(*arguments[:5]), Mask(*arguments[5:]))


@crossed_rates.register_fake
def _(*arguments: Any) -> Tensor:
    query_weight, keys = arguments[1], arguments[6]
    return query_weight.new_empty(keys.shape)


@torch.library.custom_op(
    "sbmt::crossed_rates_backward",
    mutates_args=(),
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


@torch.library.custom_op("sbmt::pair_totals", mutates_args=(), device_types="cpu")
def pair_totals(part: Tensor, weight: Tensor, n_partitions: int, size: int, n_graphs: int) -> Tensor:
    """How much the tokens of each graph are in every pair of parts of each group, ``(graphs, g, s, s)``."""
    from sbmt.kernels.cpu import launch

    return launch.pair_totals(part, weight, n_partitions, size, n_graphs)


@pair_totals.register_fake
def _(part: Tensor, weight: Tensor, n_partitions: int, size: int, n_graphs: int) -> Tensor:
    return weight.new_empty(n_graphs, n_partitions // 2, size, size)


@torch.library.custom_op("sbmt::pair_totals_backward", mutates_args=(), device_types="cpu")
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
