"""Attention along edges that are drawn meanwhile: what inference needs, in one pass and without storing the mask."""

from typing import TypeGuard

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.model import BlockModel
from sbmt.block_model.reweighting import SMALLEST_PROBABILITY
from sbmt.errors import check_untransformed
from sbmt.graph.edges import reach_of
from sbmt.graph.padding import share_of_pairs
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.draws import attend_drawn
from sbmt.precision import accumulator


def can_draw_meanwhile(block_model: BlockModel, sampler: str, backend: str) -> TypeGuard[CrossedModel]:
    """Whether :func:`attend_while_drawing` serves these: no gradients, and what the CPU's kernels draw from parts."""
    is_served = isinstance(block_model, CrossedModel) and block_model.link.is_poisson and can_run_on(block_model.device)
    return is_served and sampler == "exact" and backend in ("auto", "cpu") and not torch.is_grad_enabled()


def attend_while_drawing(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: CrossedModel,
    exploration: float,
    window: int | None,
    reweight: bool,
    sink: Tensor | None,
    seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws, weighs and attends some rows at a time: what the sampler ``exact`` and the backend ``cpu`` do in turn.

    Edges and values are the same as theirs. The arguments are those of :func:`sbmt.sbm_attention`, which checks them,
    for inputs that :func:`can_draw_meanwhile` accepts; ``seed`` is that of the edges.

    Returns:
        Values ``(batch, heads, n_queries, d_value)``, the density, and the one that is expected without exploration,
        both ``(batch, 1)`` if heads share a graph, and ``(batch, heads)`` if they do not.

    Cost: O(n k + edges · d) time, O(n · d) memory.
    """
    given = [t.to(accumulator(value)) for t in (query, key, value)]
    check_untransformed(*given)
    sinks, shape = given[0].new_empty(0) if sink is None else sink.to(given[0].dtype), block_model.shape
    tokens = *(t.flatten(0, 2).contiguous() for t in given), sinks
    masks = block_model.query_mask, block_model.key_mask
    source = *block_model.factors(), list(shape), *masks, exploration, reach_of(window), seed, first_example
    out, n_edges, expected = attend_drawn(*tokens, SMALLEST_PROBABILITY if reweight else 1.0, *source)
    density, expected = (share_of_pairs(total.view(shape[:2]), shape, *masks) for total in (n_edges, expected))
    return out.unflatten(0, query.shape[:3]).to(value.dtype), density, expected
