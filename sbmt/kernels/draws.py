"""Drawing edges of rate factors by the exact law, on the CPU and on GPUs."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.structures import FewClusters, RateFactors


def draw_exact(factors: RateFactors, seed: int, first_example: int) -> tuple[Tensor, Tensor] | None:
    """Independent Bernoulli edges, as ``row_ptr`` and ``keys``.

    None where there are no kernels, or where plain torch is expected to be faster.
    """
    if can_run_on(factors.key.device):
        return draw_on_cpu(*factors, seed, first_example)
    if has_gpu_kernels(factors.key.device):
        from sbmt.kernels.gpu.draws import sample

        with torch.cuda.device_of(factors.key):
            return sample(factors, seed, first_example)
    return None


@torch.library.custom_op("sbmt::sample_exact", mutates_args=(), device_types="cpu")
def draw_on_cpu(
    query: Tensor,
    key: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """:func:`draw_exact` as an operator."""
    from sbmt.kernels.cpu.draws.sample import sample

    factors = RateFactors(query, key, query_mask, key_mask, exploration, is_poisson)
    return sample(factors, seed, first_example)


@draw_on_cpu.register_fake
def _(query: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return query.new_empty(query[..., 0].numel() + 1, dtype=torch.int64), key.new_empty(n_edges, dtype=torch.int64)


@torch.library.custom_op("sbmt::sample_few_clusters", mutates_args=(), device_types="cpu")
def draw_few_clusters(
    tokens: list[Tensor],
    shape: list[int],
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of independent edges under the Poisson link; ``tokens`` are those of a FewClusters."""
    from sbmt.kernels.cpu.draws.few_clusters import sample_few_clusters

    batch, heads, n_queries, n_keys = shape
    of_graphs = batch, heads, n_queries, n_keys
    return sample_few_clusters(
        FewClusters(*tokens), of_graphs, (query_mask, key_mask), exploration, seed, first_example
    )


@draw_few_clusters.register_fake
def _(tokens: list[Tensor], shape: list[int], *rest: Any) -> tuple[Tensor, Tensor]:
    rows, n_edges = tokens[0].shape[0], torch.library.get_ctx().new_dynamic_size()
    return tokens[0].new_empty(rows + 1), tokens[0].new_empty(n_edges)
