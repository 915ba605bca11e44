"""Drawing edges of rate factors by the exact law, on the CPU and on GPUs."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.crossed import FACTORS
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.structures import CrossedFactors, RateFactors


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


_REST = "int[] shape, Tensor? query_mask, Tensor? key_mask, float exploration, int seed, int first_example"


@torch.library.custom_op(
    "sbmt::sample_crossed",
    mutates_args=(),
    schema=f"({FACTORS}, {_REST}) -> (Tensor, Tensor)",
    device_types="cpu",
)
def draw_crossed(*arguments: Any) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys`` of independent edges of crossed partitions under the Poisson link."""
    from sbmt.kernels.cpu.draws.crossed import sample_crossed

    shape, query_mask, key_mask, *rest = arguments[5:]
    return sample_crossed(CrossedFactors(*arguments[:5]), tuple(shape), (query_mask, key_mask), *rest)


@draw_crossed.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    query, n_edges = arguments[1], torch.library.get_ctx().new_dynamic_size()
    return query.new_empty(query.shape[0] + 1, dtype=torch.int64), query.new_empty(n_edges, dtype=torch.int64)
