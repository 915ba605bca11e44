"""SBM attention on a GPU in one pass, which draws edges, weighs them and follows them without writing them down."""

from typing import Any

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.fit import mean_over_queries
from sbmt.block_model.model import SMALLEST_PROBABILITY, BlockModel
from sbmt.counter_rng import draw_seed
from sbmt.graph.edges import reach_of
from sbmt.graph.masks import share_of_pairs
from sbmt.kernels import gpu
from sbmt.types import AttentionOutput, not_compiled


def draws_on_the_way(block_model: BlockModel, settings: Any) -> bool:
    """Whether :func:`attend_and_draw` applies: to fitted masks of crossed memberships, without dropout, on a GPU."""
    if not isinstance(block_model, CrossedModel) or not gpu.serves(block_model.part_blocks):
        return False
    is_fitted = settings.learning == "likelihood" and settings.sampler == "exact" and not settings.is_dense
    return is_fitted and not settings.dropout and settings.backend in ("auto", "gpu")


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
    """:func:`~sbmt.layers.functional.attend_through` without its list of edges, and without a question to the device.

    Cost: O(n k + edges (d + √k)); memory O(n (d + √k)). Edges are those that ``sampler="exact"`` draws there.
    """
    from sbmt.kernels.gpu.attend import DrawnAttention
    from sbmt.kernels.gpu.draw import prepare

    seed = draw_seed(generator, query.device)
    rates, reach, exploration = model.part_rates, reach_of(settings.window), settings.exploration
    masks = [model.query_mask, model.key_mask]
    draw, sizes = prepare(
        rates, model.key_part, model.factors[4], masks, seed, first_example, exploration, reach, model.causal
    )
    smallest = SMALLEST_PROBABILITY if settings.reweight else 1.0
    values, degrees, shares, gained = DrawnAttention.apply(
        query, key, value, settings.sink, rates, model.factors[4], draw, sizes, smallest
    )
    density, expected = (share_of_pairs(x.sum(2), model.shape, *model.masks) for x in (degrees, shares))
    loss = values.new_zeros((), dtype=torch.float32)
    if torch.is_grad_enabled():
        total = model.sum_of_rates().sum() - settings.edges_per_query * gained.sum()
        loss = mean_over_queries(total, model.shape, model.query_mask)
    return AttentionOutput(values, density, expected, None, loss)
