"""The exact law on a GPU: bounds by torch, then geometric steps over the keys of each row, which come out in order."""

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.philox import philox
from sbmt.kernels.gpu.tiles.forward import poisson_link
from sbmt.kernels.gpu.toolchain import kernel
from sbmt.kernels.structures import RateFactors
from sbmt.precision import full_precision

VISITS = 64  # keys of a row at a time
# How many visits cost as much as one candidate that torch draws, sorts and merges: an estimate, not measured.
VISITS_PER_CANDIDATE = 32.0
_SLACK = 1e-6  # more than float32 rounds
SLACK = 4e-6  # more than a few such roundings, and those of exponentials
_ROUNDED_UP = 1 + 1e-12
COLUMNS = tl.constexpr(8)  # of the rate factors, at a time
CANDIDATE, KEEP = tl.constexpr(2 << 28), tl.constexpr(3 << 28)  # of sbmt.counter_rng: purposes above the head's bits


class Bounds(NamedTuple):
    """Bounds of rates and probabilities that need no product of a pair.

    With M each cluster's largest membership, key j has l_j M ≤ K̂_j ≤ b_j M.
    """

    lowest: Tensor  # l ``(batch, heads, n_keys)``
    highest: Tensor  # b
    row: Tensor  # p̄ float64 ``(batch, heads, n_queries)``, at least every probability of the row; 0 for an empty row
    row_rate: Tensor  # T Mᵀ float64 ``(batch, heads, n_queries)``


def sample(factors: RateFactors, seed: int, first_example: int) -> tuple[Tensor, Tensor] | None:
    r"""``row_ptr`` and ``keys`` of a mask; see :func:`sbmt.kernels.draws.draw_exact`.

    With $\bar p_i \ge p_{ij}$ over row i, geometric steps visit each key with probability $\bar p_i$, and a visited key
    is kept with probability $p_{ij} / \bar p_i$. With M the clusters' largest memberships and
    $l_j M \le \hat K_j \le b_j M$, the rate lies between $l_j\, T_i M$ and $b_j\, T_i M$, so that most coins need no
    product. One pass of the kernel counts the edges and a second one writes them. Keys come out in ascending order, and
    both passes read the same streams, so nothing is sorted or stored in between.

    Returns None where memberships differ so much that rows would visit many times the keys they keep.

    Cost: O(n k) for the bounds, O(visits) for the steps, O(k) for each coin in doubt; memory for the edges.
    """
    bounds = bound(factors)
    visits = bounds.row.sum() * factors.key.shape[2]
    candidates = (factors.query.double().sum(2) * factors.key.double().sum(2)).sum()  # the sum of all rates
    if bool(visits > VISITS_PER_CANDIDATE * candidates):
        return None
    return draw_by_skipping(factors, bounds, seed, first_example)


def bound(factors: RateFactors) -> Bounds:
    """Cost: O(n k)."""
    key, query_mask = factors.key, factors.query_mask
    largest = key.amax(2, keepdim=True)  # M, batch heads 1 k
    ratio = key / largest.clamp(min=torch.finfo(key.dtype).tiny)
    lowest = ratio.masked_fill(largest == 0, float("inf")).amin(-1).clamp(max=1.0)  # empty clusters bound no key
    with full_precision(key):
        row_rate = (factors.query.double() @ largest.double().mT).squeeze(-1) * _ROUNDED_UP  # batch heads n_queries
    row = row_rate + factors.exploration
    row = -torch.expm1(-row) if factors.is_poisson else row.clamp(max=1.0)
    if query_mask is not None:
        row = row * query_mask[:, None]
    return Bounds(lowest * (1 - _SLACK), ratio.amax(-1) * (1 + _SLACK), row, row_rate)


def draw_by_skipping(factors: RateFactors, bounds: Bounds, seed: int, first_example: int) -> tuple[Tensor, Tensor]:
    """Launches the kernel twice, to count edges and to write their keys."""
    rates, key, _, key_mask, exploration, is_poisson = factors
    batch, heads, n_queries, n_clusters = rates.shape
    n_keys, n_rows = key.shape[2], batch * heads * n_queries
    mask = None if key_mask is None else key_mask.expand(batch, -1).contiguous()
    delta = bounds.row.new_full((1,), exploration)  # as an argument it would be rounded to float32
    stride = -1 / torch.log1p(-bounds.row)  # 0 where every key is visited
    tensors = rates, key, bounds.lowest, bounds.highest, bounds.row, stride, bounds.row_rate
    given = [*(t.contiguous() for t in tensors), delta, mask]
    sizes = (seed, first_example, heads, n_queries, n_keys)
    options = {"CLUSTERS": n_clusters, "VISITS": VISITS, "SLACK": SLACK, "IS_POISSON": is_poisson, "num_warps": 1}
    counts = torch.empty(n_rows, dtype=torch.int64, device=key.device)
    skip[(n_rows,)](*given, counts, counts, *sizes, **options, IS_COUNT=True)
    row_ptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    keys = counts.new_empty(int(row_ptr[-1]))
    skip[(n_rows,)](*given, row_ptr, keys, *sizes, **options, IS_COUNT=False)
    return row_ptr, keys


@kernel
def probability(rate, IS_POISSON: tl.constexpr):
    """Applies the link to rates."""
    if not IS_POISSON:
        return tl.minimum(rate, 1.0)
    elif rate.dtype == tl.float64:
        return 1 - tl.exp(-rate)
    else:
        return poisson_link(rate)


@kernel
def words_from(seed, first_block, row, head, example, N: tl.constexpr):
    """Draws the four words of each of ``N`` blocks of a row's stream."""
    blocks = (first_block + tl.arange(0, N)).to(tl.uint32)
    same = tl.zeros_like(blocks)
    return philox(seed, blocks, same + row.to(tl.uint32), same + head.to(tl.uint32), same + example.to(tl.uint32))


@kernel
def exponential(upper, lower):
    """Makes exponential variates of 53-bit uniforms; shorter ones would leave keys out where gaps are long."""
    return -tl.log(((upper >> 5).to(tl.float64) * 67108864.0 + (lower >> 6).to(tl.float64) + 0.5) / 9007199254740992.0)


@kernel
def skip(
    query_rate, key_rate, lowest, highest, bound, stride, bound_rate, delta_in, key_mask, row_ptr, out,
    seed, first_example, n_heads, n_queries, n_keys,
    CLUSTERS: tl.constexpr, VISITS: tl.constexpr, SLACK: tl.constexpr,
    IS_POISSON: tl.constexpr, IS_COUNT: tl.constexpr,
):  # fmt: skip
    """Counts the edges of a row, or writes their keys from ``row_ptr[row]`` on; both passes draw the same edges.

    Keys are visited with probability ``bound``, by gaps of ⌊E · stride⌋ for exponential E with stride
    −1 / ln(1 − bound), and kept with probability p / bound. A key's rate lies between ``lowest`` and ``highest`` times
    ``bound_rate``, and is computed only for coins that fall in between. These limits are float32 and widened by
    ``SLACK``; the rate that decides is float64.
    """
    row = tl.program_id(0).to(tl.int64)
    graph, query = row // n_queries, row % n_queries
    first, head, example = graph * n_keys, graph % n_heads, graph // n_heads
    largest, per_unit, delta = tl.load(bound + row), tl.load(stride + row), tl.load(delta_in)
    unit, about_rate = largest.to(tl.float32) / 4294967296.0, tl.load(bound_rate + row).to(tl.float32)
    key = seed.to(tl.int64)
    n_visits = tl.full((), 0, tl.int64)
    position = tl.where(largest > 0, -1, n_keys).to(tl.int64)
    furthest = tl.full((), 0, tl.float64) + n_keys
    n_edges = tl.full((), 0, tl.int64)
    start = tl.full((), 0, tl.int64) if IS_COUNT else tl.load(row_ptr + row)
    while position < n_keys:
        number = example + first_example
        w0, w1, w2, w3 = words_from(key, n_visits // 2, query, head + CANDIDATE, number, VISITS // 2)
        x0, x1, x2, x3 = words_from(key, n_visits // 4, query, head + KEEP, number, VISITS // 4)
        steps = exponential(tl.interleave(w0, w2), tl.interleave(w1, w3)) * per_unit
        words = tl.interleave(tl.interleave(x0, x2), tl.interleave(x1, x3))
        gaps = tl.minimum(steps, furthest).to(tl.int64)
        keys = position + tl.cumsum(gaps + 1, 0)
        is_visited = keys < n_keys
        if key_mask is not None:
            is_visited &= tl.load(key_mask + example * n_keys + keys, is_visited, other=0) != 0
        coins = words.to(tl.float32)  # (word + ½) / 2³² · largest lies between this and one more, in its unit
        low = tl.load(lowest + first + keys, is_visited, other=0.0) * about_rate + delta.to(tl.float32)
        high = tl.load(highest + first + keys, is_visited, other=0.0) * about_rate + delta.to(tl.float32)
        is_kept = is_visited & ((coins + 1) * (unit * (1 + SLACK)) < probability(low, IS_POISSON))
        is_unsure = is_visited & (coins * (unit * (1 - SLACK)) <= probability(high, IS_POISSON)) & ~is_kept
        if tl.max(is_unsure.to(tl.int32), 0) > 0:
            rates = tl.zeros((VISITS,), tl.float64) + delta
            for first_column in range(0, CLUSTERS, COLUMNS):  # a few at a time, since all would not fit into registers
                columns = first_column + tl.arange(0, COLUMNS)
                t = tl.load(query_rate + row * CLUSTERS + columns, columns < CLUSTERS, other=0.0).to(tl.float64)
                places = (first + keys)[:, None] * CLUSTERS + columns[None, :]
                k = tl.load(key_rate + places, is_unsure[:, None] & (columns < CLUSTERS)[None, :], other=0.0)
                rates += tl.sum(k.to(tl.float64) * t[None, :], 1)
            limit = (words.to(tl.float64) + 0.5) / 4294967296.0 * largest
            is_kept |= is_unsure & (limit < probability(rates, IS_POISSON))
        kept = is_kept.to(tl.int32)
        if not IS_COUNT:
            tl.store(out + start + n_edges + tl.cumsum(kept, 0) - 1, keys, is_kept)
        n_edges += tl.sum(kept, 0)
        position = tl.max(keys, 0)
        n_visits += VISITS
    if IS_COUNT:
        tl.store(out + row, n_edges)
