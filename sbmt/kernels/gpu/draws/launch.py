"""The sampling kernel, called with torch tensors."""

import torch
from torch import Tensor

from sbmt.kernels.gpu.draws.skipping import skip

VISITS = 64  # keys of a row at a time
LONG = 2**24  # keys of a row whose places, VISITS rows further, exceed 32 bits
_SLACK = 1e-6  # more than float32 rounds
SLACK = 4e-6  # more than a few such roundings, and those of exponentials


def bounds_of_keys(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each cluster's largest membership M ``(batch, heads, 1, k)``, and the l_j, b_j of l_j M ≤ K̂_j ≤ b_j M."""
    largest = key.amax(2, keepdim=True)
    ratio = key / largest.clamp(min=torch.finfo(key.dtype).tiny)
    lowest = ratio.masked_fill(largest == 0, float("inf")).amin(-1).clamp(max=1.0)  # empty clusters bind nobody
    return largest, lowest * (1 - _SLACK), ratio.amax(-1) * (1 + _SLACK)


def draw_by_skipping(
    query_rate: Tensor,
    key_rate: Tensor,
    bounds: tuple[Tensor, Tensor],
    bound: Tensor,
    bound_rate: Tensor,
    key_mask: Tensor | None,
    seed: int,
    first_example: int,
    exploration: float,
    is_poisson: bool,
) -> tuple[Tensor, Tensor]:
    """``row_ptr`` and ``keys``: once to count, once to fill.

    Args:
        query_rate: T ``(batch, heads, n_queries, k)``.
        key_rate: K̂ ``(batch, heads, n_keys, k)``.
        bounds: l and b of :func:`bounds_of_keys`, ``(batch, heads, n_keys)``.
        bound: p̄ float64 ``(batch, heads, n_queries)``, at least every probability of the row; 0 leaves the row empty.
        bound_rate: T Mᵀ float64 ``(batch, heads, n_queries)``.
        key_mask: bool ``(batch, n_keys)`` or None.
        seed: The key of the streams.
        first_example: Number of the batch's first example.
        exploration: δ.
        is_poisson: The link.
    """
    batch, heads, n_queries, n_clusters = query_rate.shape
    n_keys, n_rows = key_rate.shape[2], batch * heads * n_queries
    mask = None if key_mask is None else key_mask.expand(batch, -1).contiguous()
    delta = bound.new_full((1,), exploration)  # a number would be rounded to float32 on its way
    stride = -1 / torch.log1p(-bound)  # 0 where every key is visited
    given = [*(t.contiguous() for t in (query_rate, key_rate, *bounds, bound, stride, bound_rate)), delta, mask]
    sizes = (seed, first_example, heads, n_queries, n_keys)
    about = {"CLUSTERS": n_clusters, "VISITS": VISITS, "SLACK": SLACK, "IS_POISSON": is_poisson}
    about |= {"IS_LONG": n_keys >= LONG, "num_warps": 1}
    counts = torch.empty(n_rows, dtype=torch.int64, device=query_rate.device)
    skip[(n_rows,)](*given, counts, counts, *sizes, **about, IS_COUNT=True)
    row_ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    keys = counts.new_empty(int(row_ptr[-1]))
    skip[(n_rows,)](*given, row_ptr, keys, *sizes, **about, IS_COUNT=False)
    return row_ptr, keys
