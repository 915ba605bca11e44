"""The operators of block models whose tokens belong to a few clusters each; there are kernels for the CPU only."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.rows import MASK, masks_of
from sbmt.kernels.structures import FewClusters

_TOKENS = "Tensor query_cluster, Tensor query_weight, Tensor blocks, Tensor key_cluster, Tensor key_weight"


@torch.library.custom_op("sbmt::choose_clusters", mutates_args=(), device_types="cpu")
def choose_clusters(nodes: Tensor, clusters: Tensor, n_groups: int, n_active: int) -> tuple[Tensor, Tensor]:
    """The ``n_active`` clusters of largest product with each node in each group, ascending, and their softmax.

    Nodes are ``(heads, rows, d)``, clusters ``(heads, k, d)``, the results ``(heads, rows, n_groups · n_active)``. No
    gradient passes: :func:`few_memberships` has it.
    """
    from sbmt.kernels.cpu import launch

    return launch.choose_clusters(nodes, clusters, n_groups, n_active)


@choose_clusters.register_fake
def _(nodes: Tensor, clusters: Tensor, n_groups: int, n_active: int) -> tuple[Tensor, Tensor]:
    weight = nodes.new_empty((*nodes.shape[:2], n_groups * n_active))
    return torch.empty_like(weight, dtype=torch.int64), weight


@torch.library.custom_op("sbmt::few_memberships", mutates_args=(), device_types="cpu")
def few_memberships(nodes: Tensor, clusters: Tensor, chosen: Tensor, weight: Tensor, n_groups: int) -> Tensor:
    """The weights that were found, with their gradients."""
    return weight.clone()


@few_memberships.register_fake
def _(nodes: Tensor, clusters: Tensor, chosen: Tensor, weight: Tensor, n_groups: int) -> Tensor:
    return torch.empty_like(weight)


@torch.library.custom_op("sbmt::few_memberships_backward", mutates_args=(), device_types="cpu")
def few_memberships_backward(
    grad: Tensor, nodes: Tensor, clusters: Tensor, chosen: Tensor, weight: Tensor, n_groups: int
) -> tuple[Tensor, Tensor]:
    """Gradients of nodes and clusters."""
    from sbmt.kernels.cpu import launch

    return launch.few_memberships_backward(grad.contiguous(), nodes, clusters, chosen, weight, n_groups)


@few_memberships_backward.register_fake
def _(grad: Tensor, nodes: Tensor, clusters: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(nodes), torch.empty_like(clusters)


def _save_memberships(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.n_groups = inputs[4]


def _differentiate_memberships(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return *few_memberships_backward(grad, *ctx.saved_tensors, ctx.n_groups), None, None, None


few_memberships.register_autograd(_differentiate_memberships, setup_context=_save_memberships)


@torch.library.custom_op(
    "sbmt::few_cluster_rates", mutates_args=(), schema=f"({_TOKENS}, {MASK}) -> Tensor", device_types="cpu"
)
def few_cluster_rates(*arguments: Any) -> Tensor:
    """Q_i S K_j for every edge (i, j)."""
    from sbmt.kernels.cpu import launch

    return launch.few_cluster_rates(FewClusters(*arguments[:5]), masks_of(*arguments[5:])[0])


@few_cluster_rates.register_fake
def _(*arguments: Any) -> Tensor:
    _, weight, _, _, _, _, keys = arguments[:7]
    return weight.new_empty(keys.shape)


@torch.library.custom_op(
    "sbmt::few_cluster_rates_backward",
    mutates_args=(),
    schema=f"(Tensor grad, {_TOKENS}, {MASK}) -> (Tensor, Tensor, Tensor)",
    device_types="cpu",
)
def few_cluster_rates_backward(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the queries' weights, the blocks and the keys' weights."""
    from sbmt.kernels.cpu import launch

    return launch.few_cluster_rates_backward(grad.contiguous(), FewClusters(*arguments[:5]), *masks_of(*arguments[5:]))


@few_cluster_rates_backward.register_fake
def _(grad: Tensor, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, query_weight, blocks, _, key_weight = arguments[:5]
    return torch.empty_like(query_weight), torch.empty_like(blocks), torch.empty_like(key_weight)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:10])
    ctx.sizes = inputs[10:]


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    query, blocks, key = few_cluster_rates_backward(grad, *ctx.saved_tensors, *ctx.sizes)
    return None, query, blocks, None, key, *(None,) * 7


few_cluster_rates.register_autograd(_differentiate, setup_context=_save)
