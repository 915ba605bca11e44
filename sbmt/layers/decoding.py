"""Attention of new tokens to all before them, along edges that are drawn from what a cache keeps by cluster."""

from typing import Any

import torch
from torch import Generator, Tensor

from sbmt.attention.cache import Cache
from sbmt.attention.dispatch import attend_along
from sbmt.attention.inputs import EdgeTerms
from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.model import probability, reweighting_bias
from sbmt.counter_rng import draw_seed, first_example
from sbmt.graph.edges import EdgeList, reach_of
from sbmt.kernels.operators import can_run_on, draw_next, edge_rate, remember
from sbmt.types import AttentionOutput


def attend_next(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, cache: Cache, generator: Generator | None
) -> AttentionOutput | None:
    """Attention of an SBM layer's new tokens to those so far, from crossed memberships that the cache keeps by cluster.

    None where it does not apply: for other memberships and samplers, and where there are no compiled loops.

    Cost: O(edges · d + √k (d + groups)) a token and head, whatever the length of the context, but for the search within
    a cluster, which takes the logarithm of it.
    """
    if layer.membership != "crossed" or layer.sampler != "exact" or not can_run_on(query.device):
        return None
    model = layer.block_model(query, key)
    assert isinstance(model, CrossedModel)
    query_part, query_weight, blocks, new_part, new_weight = model.factors
    key, value, part, weight = cache.append(key, value, new_part, new_weight)
    if cache.kept is None:
        cache.kept = remember(query.shape[0], query.shape[1], blocks), blocks
    kept, blocks = cache.kept  # before any training, rates depend on the number of keys: let the first call decide
    offset, reach = cache.length - query.shape[2], reach_of(layer.window)
    factors = query_part, query_weight, blocks, part, weight
    row_ptr, keys = draw_next(kept, *factors, offset, draw_seed(generator), first_example(), reach)
    edges = EdgeList(row_ptr, keys, (*query.shape[:3], key.shape[2]))
    bias = None
    if layer.reweight:
        drawn_with = probability("poisson", edge_rate(*factors, row_ptr, keys))
        place = offset + edges.rows() % query.shape[2]
        bias = reweighting_bias(drawn_with.masked_fill(place - keys <= reach, 1.0))
    values, _ = attend_along(query, key, value, edges, EdgeTerms(bias=bias, sink=layer.sink), layer.backend)
    n_visible = torch.arange(offset + 1, cache.length + 1, device=query.device).sum()
    density = edges.degrees().view(edges.shape[:3]).sum(2) / n_visible
    return AttentionOutput(values, density, density, edges)
