"""SBM attention on a GPU in one pass, which draws edges and attends along them without storing them."""

from typing import Any

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.fit import mean_over_queries
from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.counter_rng import draw_seed
from sbmt.graph.edges import reach_of
from sbmt.graph.masks import share_of_pairs
from sbmt.types import AttentionOutput, not_compiled


@not_compiled
def attend_and_draw(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    model: CrossedModel,
    settings: Any,
    generator: torch.Generator | None,
    first_example: int,
) -> AttentionOutput:
    """:func:`~sbmt.layers.functional.attend_through` for fitted masks, without synchronising with the device.

    Cost: O(n k + edges (d + √k)); memory O(n (d + √k)). The edges are those of ``sampler="exact"`` on a GPU.
    """
    from sbmt.kernels.gpu.attend import DrawnAttention
    from sbmt.kernels.gpu.draw import prepare

    factors = *model.factors, [model.query_mask, model.key_mask]
    rest = draw_seed(generator, query.device), first_example, settings.exploration, reach_of(settings.window)
    draw, sizes, rates = prepare(factors, *rest, model.causal)
    smallest = SMALLEST_PROBABILITY if settings.reweight else 1.0
    given = query, key, value, settings.sink, rates, model.factors[4], draw, sizes, smallest
    values, degrees, shares, gained = DrawnAttention.apply(*given)
    density, expected = (share_of_pairs(x.sum(2), model.shape, *model.masks) for x in (degrees, shares))
    loss = values.new_zeros((), dtype=torch.float32)
    if torch.is_grad_enabled():
        total = model.sum_of_rates().sum() - settings.edges_per_query * gained.sum()
        loss = mean_over_queries(total, model.shape, model.query_mask)
    return AttentionOutput(values, density, expected, None, loss)
