"""The exact law on a GPU: bounds by torch, rows by a kernel."""

from typing import NamedTuple

import torch
from torch import Tensor

from sbmt.kernels.gpu.draws.skipping import skip

VISITS = 64  # keys of a row at a time
LONG = 2**24  # keys of a row whose places, VISITS rows further, exceed 32 bits
# How many visits of a kernel are worth one candidate that torch draws, sorts and merges. An estimate: not measured.
VISITS_PER_CANDIDATE = 32.0
_SLACK = 1e-6  # more than float32 rounds
SLACK = 4e-6  # more than a few such roundings, and those of exponentials
_ROUNDED_UP = 1 + 1e-12


class Bounds(NamedTuple):
    """Bounds of rates and probabilities that need no product of a pair.

    With M each cluster's largest membership, key j has l_j M ≤ K̂_j ≤ b_j M.
    """

    lowest: Tensor  # l ``(batch, heads, n_keys)``
    highest: Tensor  # b
    row: Tensor  # p̄ float64 ``(batch, heads, n_queries)``, at least every probability of the row; 0 for an empty row
    row_rate: Tensor  # T Mᵀ float64 ``(batch, heads, n_queries)``


def sample(
    rates: Tensor,
    key: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor] | None:
    r"""``row_ptr`` and ``keys`` of a mask; see :func:`sbmt.kernels.draws.draw_exact`.

    With $\bar p_i \ge p_{ij}$ over row i, geometric steps visit each key with probability $\bar p_i$, and a visited key
    is kept with probability $p_{ij} / \bar p_i$. With M the clusters' largest memberships and
    $l_j M \le \hat K_j \le b_j M$, the rate lies between $l_j\, T_i M$ and $b_j\, T_i M$, so that most coins need no
    product. One pass of the kernel counts and one fills. Keys come out in ascending order, and both passes read the
    same streams, so nothing is sorted or stored in between.

    Where memberships are so unlike that rows would visit many times the keys they keep, the answer is None.

    Cost: O(n k) for the bounds, O(visits) for the steps, O(k) for each coin in doubt; memory for the edges.
    """
    bounds = bound(rates, key, query_mask, exploration, is_poisson)
    visits = bounds.row.sum() * key.shape[2]
    candidates = (rates.double().sum(2) * key.double().sum(2)).sum()  # the sum of all rates
    if bool(visits > VISITS_PER_CANDIDATE * candidates):
        return None
    return draw_by_skipping(rates, key, bounds, key_mask, exploration, is_poisson, seed, first_example)


def bound(rates: Tensor, key: Tensor, query_mask: Tensor | None, exploration: float, is_poisson: bool) -> Bounds:
    """Cost: O(n k)."""
    largest, lowest, highest = bounds_of_keys(key)
    with torch.autocast(key.device.type, enabled=False):
        row_rate = (rates.double() @ largest.double().mT).squeeze(-1) * _ROUNDED_UP  # batch heads n_queries
    row = row_rate + exploration
    row = -torch.expm1(-row) if is_poisson else row.clamp(max=1.0)
    if query_mask is not None:
        row = row * query_mask[:, None]
    return Bounds(lowest, highest, row, row_rate)


def bounds_of_keys(key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each cluster's largest membership M ``(batch, heads, 1, k)``, and the l and b of :class:`Bounds`."""
    largest = key.amax(2, keepdim=True)
    ratio = key / largest.clamp(min=torch.finfo(key.dtype).tiny)
    lowest = ratio.masked_fill(largest == 0, float("inf")).amin(-1).clamp(max=1.0)  # empty clusters bound no key
    return largest, lowest * (1 - _SLACK), ratio.amax(-1) * (1 + _SLACK)


def draw_by_skipping(
    rates: Tensor,
    key: Tensor,
    bounds: Bounds,
    key_mask: Tensor | None,
    exploration: float,
    is_poisson: bool,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """Launches the kernel twice, to count edges and to write their keys."""
    batch, heads, n_queries, n_clusters = rates.shape
    n_keys, n_rows = key.shape[2], batch * heads * n_queries
    mask = None if key_mask is None else key_mask.expand(batch, -1).contiguous()
    delta = bounds.row.new_full((1,), exploration)  # as an argument it would be rounded to float32
    stride = -1 / torch.log1p(-bounds.row)  # 0 where every key is visited
    tensors = rates, key, bounds.lowest, bounds.highest, bounds.row, stride, bounds.row_rate
    given = [*(t.contiguous() for t in tensors), delta, mask]
    sizes = (seed, first_example, heads, n_queries, n_keys)
    options = {"CLUSTERS": n_clusters, "VISITS": VISITS, "SLACK": SLACK, "IS_POISSON": is_poisson}
    options |= {"IS_LONG": n_keys >= LONG, "num_warps": 1}
    counts = torch.empty(n_rows, dtype=torch.int64, device=key.device)
    skip[(n_rows,)](*given, counts, counts, *sizes, **options, IS_COUNT=True)
    row_ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    keys = counts.new_empty(int(row_ptr[-1]))
    skip[(n_rows,)](*given, row_ptr, keys, *sizes, **options, IS_COUNT=False)
    return row_ptr, keys
