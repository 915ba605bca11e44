"""Launches the GPU kernels of crossed partitions on torch tensors."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from sbmt.kernels.gpu.crossed import points, rates
from sbmt.kernels.gpu.crossed.largest import choose
from sbmt.kernels.structures import ByKey, CrossedFactors, Mask
from sbmt.kernels.token_sums import sum_of_products

ROWS, TOKENS, EDGES, POINTS = 64, 32, 32, 32  # that a program takes at a time
DENSE = 0.5  # points per key from which on a row takes less time key by key
TOO_MANY = 1 << 36  # points; an int64 holds those of 2²⁶ such rows


def largest(logits: Tensor, n_partitions: int, n_active: int) -> Tensor:
    """The numbers of each token's ``n_active`` largest logits of each partition, ascending: int16 ``(…, chosen)``."""
    size = logits.shape[-1] // n_partitions
    out = logits.new_empty(*logits.shape[:-1], n_partitions * n_active, dtype=torch.int16)
    n_rows = logits.numel() // size
    choose[(-(-n_rows // ROWS),)](
        logits.contiguous(), out, n_rows, n_partitions, SIZE=size, ACTIVE=n_active, ROWS=ROWS, num_warps=2
    )
    return out


def draw(
    rate: Tensor,
    factors: CrossedFactors,
    shape: tuple[int, int, int, int],
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    exploration: float,
    reach: int,
    seed: int,
    first_example: int,
) -> Tensor | None:
    r"""The cells of edges of probability $1 - e^{-(r_{ij} + \delta)}$, independently, and of a window; ascending.

    A row's Poisson points are scattered over the pairs of parts, and each names a key there
    (:func:`sbmt.kernels.gpu.crossed.points.scatter`); cells named twice are merged. There is nothing to thin, and no
    product with any key. One pass counts the points of each row, and a second one, which reads the same streams, writes
    their cells.

    Args:
        rate: The queries' rates to all parts, flattened over (example, head, query).
        factors: Those of the model.
        shape: The mask's.
        query_mask: bool ``(batch, n_queries)``.
        key_mask: bool ``(batch, n_keys)``.
        exploration: δ.
        reach: Pairs of real tokens at most so many places apart are edges in any case; -1 for none.
        seed: int64.
        first_example: Number of the batch's first example.

    Returns None where a row has so many points that visiting every key is cheaper.

    Cost: O(n g a²) and a sort of as many numbers for the keys, O(g s²) for a row and O(s + log n) for a point, for g
    groups of partitions into s parts, a of them active; and a sort of the points.
    """
    batch, heads, n_queries, n_keys = shape
    n_rows, (_, n_partitions, size, _) = rate.shape[0], factors.blocks.shape
    n_groups, device = n_partitions // 2, rate.device
    masks = [None if m is None else m.expand(batch, -1).contiguous() for m in (query_mask, key_mask)]
    members = _members(factors, n_keys, heads, batch * heads * n_groups * size**2, masks[1])
    delta = torch.full((1,), exploration, dtype=torch.float64, device=device)
    given = (rate, *members, *masks, delta)
    sizes = (seed, first_example, heads, n_queries, n_keys, min(reach, n_keys), DENSE, TOO_MANY)
    n_active = factors.key_part.shape[1] // n_partitions
    options = {"GROUPS": n_groups, "SIZE": size, "ENTRIES": n_groups * n_active**2, "POINTS": POINTS, "num_warps": 1}
    counts = torch.empty(n_rows, dtype=torch.int64, device=device)
    points.scatter[(n_rows,)](*given, counts, counts, *sizes, **options, IS_COUNT=True)
    point_ptr = pad(counts.cumsum(0), (1, 0))
    n_points = int(point_ptr[-1])
    if n_points >= TOO_MANY:
        return None
    cells = counts.new_empty(n_points)
    points.scatter[(n_rows,)](*given, point_ptr, cells, *sizes, **options, IS_COUNT=False)
    found = cells.unique()
    return found[1:] if n_points and found[0] < 0 else found


def _members(
    factors: CrossedFactors, n_keys: int, n_heads: int, n_pairs: int, key_mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which keys belong to each pair of parts of each graph, for :func:`sbmt.kernels.gpu.crossed.points.scatter`.

    Returns:
        How much the keys are in each pair; where its entries begin; the running sums of what all entries add, in whole
        units, from 0 on; and the numbers of the entries, which say which key each is of.
    """
    part, weight = factors.key_part, factors.key_weight
    n_tokens, (_, n_partitions, size, _) = part.shape[0], factors.blocks.shape
    n_groups, n_active = n_partitions // 2, part.shape[1] // n_partitions
    n_entries = n_tokens * n_groups * n_active**2
    pair = torch.empty(n_entries, dtype=torch.int32 if n_pairs < 1 << 31 else torch.int64, device=part.device)
    share = torch.empty(n_entries, dtype=torch.int64, device=part.device)
    options = {"GROUPS": n_groups, "SIZE": size, "ACTIVE": n_active, "TOKENS": TOKENS}
    sizes = (n_tokens, n_heads, n_keys, n_pairs)
    points.enter[(-(-n_tokens // TOKENS),)](part, weight, key_mask, pair, share, *sizes, **options, num_warps=1)
    pair, entries = pair.sort(stable=True)
    sums = pad(share[entries].cumsum(0), (1, 0))  # may pass the largest int64, which leaves differences as they are
    pair_ptr = torch.searchsorted(pair, torch.arange(n_pairs + 1, dtype=pair.dtype, device=pair.device))
    mass = (sums[pair_ptr].diff().double() / points.UNIT.value).float()
    return mass, pair_ptr, sums, entries


def part_rates(part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int) -> Tensor:
    """The queries' rates to all parts."""
    n_rows, (heads, n_partitions, size, _) = part.shape[0], blocks.shape
    out = weight.new_empty(n_rows, n_partitions * size)
    options = _sizes(out, part, n_partitions) | {"ROWS": TOKENS}
    rates.to_parts[(-(-n_rows // TOKENS),)](part, weight, blocks, out, n_rows, n_queries, heads, **options)
    return out


def part_rates_backward(
    grad: Tensor, part: Tensor, weight: Tensor, blocks: Tensor, n_queries: int
) -> tuple[Tensor, Tensor]:
    """Gradients of the weights and of the blocks."""
    n_rows, (heads, n_partitions, size, _) = part.shape[0], blocks.shape
    of_weight, options = torch.empty_like(weight), _sizes(grad, part, n_partitions) | {"ROWS": TOKENS}
    rates.to_weights[(-(-n_rows // TOKENS),)](grad, part, blocks, of_weight, n_rows, n_queries, heads, **options)
    in_parts = torch.zeros_like(grad).scatter_add(-1, part.long(), weight)
    both = (t.view(-1, heads, n_queries, n_partitions, size) for t in (in_parts, grad))
    return of_weight, sum_of_products(*both).sum(0)


def rates_along(rate: Tensor, part: Tensor, weight: Tensor, n_partitions: int, mask: Mask) -> Tensor:
    """The rate of every edge."""
    out, options = rate.new_empty(mask.keys.shape), _sizes(rate, part, n_partitions) | {"EDGES": EDGES}
    rates.rates_along[(rate.shape[0],)](rate, part, weight, *mask[:2], out, *mask[2:], **options)
    return out


def rates_backward(
    grad: Tensor, rate: Tensor, part: Tensor, weight: Tensor, n_partitions: int, mask: Mask, by_key: ByKey
) -> tuple[Tensor, Tensor]:
    """Gradients of the queries' rates to all parts, and of the keys' weights."""
    of_rate, of_weight = torch.empty_like(rate), torch.empty_like(weight)
    given, options = (grad, rate, part, weight), _sizes(rate, part, n_partitions) | {"EDGES": EDGES}
    rates.to_queries[(rate.shape[0],)](*given, *mask[:2], of_rate, *mask[2:], **options)
    rates.to_keys[(weight.shape[0],)](*given, *by_key, mask.row_ptr, of_weight, *mask[2:], **options)
    return of_rate, of_weight


def _sizes(rate: Tensor, part: Tensor, n_partitions: int) -> dict[str, int]:
    size, n_active = rate.shape[1] // n_partitions, part.shape[1] // n_partitions
    return {"PARTITIONS": n_partitions, "SIZE": size, "ACTIVE": n_active, "num_warps": 1}
