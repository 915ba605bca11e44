"""Code shared by the samplers: block models in float64, addresses of random streams, and weighted draws."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import WORD


def row_address(rows: Tensor, shape: tuple[int, int, int, int], first_example: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the example, head and query of flattened rows, which determine their random streams."""
    _, heads, n_queries, _ = shape
    graph = rows // n_queries
    return graph // heads + first_example, graph % heads, rows % n_queries


def in_float64(block_model: BlockModel) -> BlockModel:
    """Converts a block model to float64, so that rounding errors do not affect the draws noticeably."""
    tensors = block_model.query_membership, block_model.block_matrix, block_model.key_membership
    query, block, key = (x.detach().double() for x in tensors)
    query_mask, key_mask, causal = block_model.masks
    return BlockModel(query, block, key, query_mask, key_mask, block_model.link, causal)


def cumulative_table(weights: Float[Tensor, "tables n"]) -> Int[Tensor, " all"]:
    """Returns each table's cumulative weights as integers on one axis; table t covers [t, t + 1) · 2³² in any batch."""
    shares = weights.cumsum(1)  # in place from here on, since at large n the table takes most of the memory
    shares.div_(shares[:, -1:].clamp(min=torch.finfo(weights.dtype).tiny))
    steps = shares.mul_(WORD).round_().long().clamp_(max=WORD)
    first = torch.arange(weights.shape[0], device=weights.device)[:, None] * WORD
    return steps.add_(first).flatten()


def choose_by_weight(table: Int[Tensor, " all"], n: int, which: Tensor, word: Tensor) -> Tensor:
    """Chooses an entry of :func:`cumulative_table` ``which`` by each random word, in O(log(tables · n)) per word."""
    # Searching in sorted order reuses cache lines, which is five times faster once the table outgrows the cache.
    place, order = (which * WORD + word).sort()
    found = torch.empty_like(place)
    found[order] = torch.searchsorted(table, place, right=True)
    return found - which * n


def poisson_quantile(u: Float[Tensor, " n"], rate: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Returns the least c with P(Poisson(rate) ≤ c) ≥ u, by a search that starts at the Cornish-Fisher expansion."""
    z = torch.special.ndtri(u)
    count = (rate + rate.sqrt() * z + (z * z - 1) / 6).floor().clamp(min=0)

    def at_most(c: Tensor) -> Tensor:
        return torch.special.gammaincc(c + 1, rate).where(c >= 0, 0.0)

    while (low := at_most(count) < u).any():
        count = torch.where(low, count + 1, count)
    while (high := at_most(count - 1) >= u).any():
        count = torch.where(high, count - 1, count)
    return count.long()


def in_rows(counts: Int[Tensor, " rows"]) -> tuple[Tensor, Tensor]:
    """Returns, for each entry of ragged rows with ``counts`` entries, its row and its position within the row."""
    row = torch.arange(counts.numel(), device=counts.device).repeat_interleave(counts)
    start = counts.cumsum(0) - counts
    return row, torch.arange(row.numel(), device=counts.device) - start[row]
