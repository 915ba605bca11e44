"""SBM attention on a GPU in one pass, which draws edges and attends along them without storing them."""

from typing import Any

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.model import smallest_probability
from sbmt.counter_rng import draw_seed
from sbmt.graph.edges import reach_of
from sbmt.types import AttentionOutput, not_compiled


@not_compiled
def infer_by_kernels(layer: Any, query: Tensor, key: Tensor, masks: Any, start: float, most: float) -> CrossedModel:
    """Infers a fitted block model from detached tokens; log γ starts at ``start``, log rates stay below ``most``."""
    from sbmt.kernels.gpu.memberships import infer

    query_part, key_part, of_query, of_key, blocks, rates = infer(layer, query, key, masks, start, most)
    return CrossedModel((query_part, of_query), blocks, (key_part, of_key), masks[0], masks[1], layer.causal, rates)


@not_compiled
def attend_and_draw(
    query: Tensor, key: Tensor, value: Tensor, model: Any, settings: Any, generator: torch.Generator | None,
    first_example: int,
) -> AttentionOutput | None:  # fmt: skip
    """Computes :func:`~sbmt.layers.functional.attend_through` by kernels, or returns None for unsupported settings.

    Cost: O(n k + edges (d + √k)) time, O(n (d + √k)) memory for fitted masks; O(n² (d + k)) time, or less if they are
    sparse, and O(n (d + k)) memory for the paper's. The edges are those of ``sampler="exact"`` on a GPU or, under
    ``"fastrg"``, follow the law of Algorithm 1.
    """
    from sbmt.kernels.gpu.attend import DrawnAttention
    from sbmt.kernels.gpu.draw import prepare
    from sbmt.kernels.gpu.pairs import attend_pairs, can_attend

    tokens, is_plain = (query, key, value), settings.backend in ("auto", "gpu") and not settings.dropout
    is_fitted = isinstance(model, CrossedModel) and settings.learning == "likelihood" and settings.sampler == "exact"
    is_paper = settings.learning == "straight_through" and settings.sampler in ("exact", "fastrg")
    is_paper = is_paper and not settings.reweight and can_attend(tokens, model) and model.has_closed_density
    if not is_plain or settings.is_dense or not (is_fitted or is_paper):
        return None
    rest = draw_seed(generator, query.device), first_example, settings.exploration, reach_of(settings.window)
    if is_paper:
        return AttentionOutput(*attend_pairs(tokens, model, settings, *rest), model.expected_density())
    rates, weight = model.part_rates, model.factors[4]
    draw, sizes = prepare(rates, model.part_blocks, model.key_part, weight, model.masks, *rest)
    fit = smallest_probability(settings.reweight), settings.edges_per_query, torch.is_grad_enabled()
    given = query, key, value, settings.sink, rates, weight, draw, sizes
    values, density, expected, loss = DrawnAttention.apply(*given, *fit)
    return AttentionOutput(values, density, expected, None, loss)
