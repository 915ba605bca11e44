"""SBM attention on a GPU in one pass, which draws edges, weighs them and follows them without writing them down."""

from typing import Any

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.model import SMALLEST_PROBABILITY
from sbmt.counter_rng import draw_seed
from sbmt.graph.edges import reach_of
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
    """:func:`~sbmt.layers.functional.attend_through` for fitted masks, which asks the device nothing on the way.

    Cost: O(n k + edges (d + √k)); memory O(n (d + √k)). Edges are those that ``sampler="exact"`` draws there.
    """
    from sbmt.kernels.gpu.attend import DrawnAttention
    from sbmt.kernels.gpu.draw import prepare

    rates, weight = model.part_rates, model.factors[4]
    rest = draw_seed(generator, query.device), first_example, settings.exploration, reach_of(settings.window)
    draw, sizes = prepare(rates, model.part_blocks, model.key_part, weight, model.masks, *rest)
    smallest = SMALLEST_PROBABILITY if settings.reweight else 1.0
    fit = smallest, settings.edges_per_query, torch.is_grad_enabled()
    found = DrawnAttention.apply(query, key, value, settings.sink, rates, weight, draw, sizes, *fit)
    values, density, expected, loss = found
    return AttentionOutput(values, density, expected, None, loss)
