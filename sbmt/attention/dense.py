"""Masked attention over all pairs, the simplest backend; the tests compare all other backends with it."""

import torch
from torch import Tensor

from sbmt.attention.inputs import Attended, EdgeTerms
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import zero_padding
from sbmt.types import accumulator


def attend_dense(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Computes :func:`sbmt.edge_attention` by a masked softmax over all pairs. Cost: O(n² d) time, O(n²) memory."""

    def spread(per_edge: Tensor, elsewhere: float) -> Tensor:
        everywhere = per_edge.new_full((edges.cell_count,), elsewhere)
        return everywhere.index_put((edges.cells(),), per_edge).view(edges.shape)

    query = zero_padding(query, edges.query_mask)
    key, value = zero_padding(key, edges.key_mask), zero_padding(value, edges.key_mask)  # padding may contain NaN
    dtype = torch.promote_types(query.dtype, key.dtype)
    scaled = query.to(dtype) / query.shape[-1] ** 0.5  # scaled first, since the product could overflow in float16
    scores = scaled @ key.to(dtype).mT  # batch heads n_queries n_keys
    if terms.gate is not None:
        gates = spread(terms.gate, 1.0)
        scores = scores * gates if terms.gate_rule == "score" else scores + gates.log()
    if terms.bias is not None:
        scores = scores + spread(terms.bias, 0.0)
    mask = edges.to_dense()
    has_edge = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, float("-inf")).masked_fill(~has_edge, 0.0)  # rows without edges stay finite
    if terms.sink is not None:  # the sink is an additional column
        sink = terms.sink[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]].masked_fill(~has_edge, 0.0)  # such rows give zeros
    per_edge = weights.flatten()[edges.cells()].to(accumulator(value)) if terms.return_weights else None
    if terms.weight_scale is not None:
        weights = weights * spread(terms.weight_scale, 0.0)
    return (weights.to(value.dtype) @ value).to(value.dtype), per_edge  # autocast may change the dtype
