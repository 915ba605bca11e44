"""Drawing edges of rate factors by the exact law, on the CPU and on GPUs."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels


def draw_exact(
    rates: Tensor,
    key: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor] | None:
    """Independent Bernoulli edges of probability min(x, 1) or, under the Poisson link, 1 − e^{−x}, with x = T · K̂ + δ.

    Args:
        rates: T = Q̂ S, ``(batch, heads, n_queries, k)``.
        key: K̂ ``(batch, heads, n_keys, k)``.
        query_mask: bool ``(batch, n_queries)`` or None.
        key_mask: bool ``(batch, n_keys)`` or None.
        exploration: δ.
        is_poisson: The link.
        seed: The key of the streams.
        first_example: Number of the batch's first example.

    Returns:
        ``row_ptr`` and ``keys``, or None where there are no kernels or plain torch is expected to be faster.
    """
    given = rates, key, query_mask, key_mask, exploration, is_poisson, seed, first_example
    if can_run_on(key.device):
        return draw_on_cpu(*given)
    if has_gpu_kernels(key.device):
        from sbmt.kernels.gpu.draws import launch

        with torch.cuda.device_of(key):
            return launch.sample(*given)
    return None


@torch.library.custom_op("sbmt::sample_exact", mutates_args=(), device_types="cpu")
def draw_on_cpu(
    rates: Tensor,
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

    return sample(rates, key, query_mask, key_mask, exploration, is_poisson, seed, first_example)


@draw_on_cpu.register_fake
def _(rates: Tensor, key: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    n_edges = torch.library.get_ctx().new_dynamic_size()
    return rates.new_empty(rates[..., 0].numel() + 1, dtype=torch.int64), key.new_empty(n_edges, dtype=torch.int64)
