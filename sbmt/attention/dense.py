"""Attention under a dense mask: the backend to read first, and the one that the others are tested against."""

import torch
from torch import Tensor

from sbmt.attention.inputs import GateRule
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import zero_padding


def attend_dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
) -> Tensor:
    """Masked softmax attention over all pairs. O(n² d) time, O(n²) memory; see :func:`sbmt.edge_attention`."""

    def spread(per_edge: Tensor, elsewhere: float) -> Tensor:
        everywhere = per_edge.new_full((edges.cell_count,), elsewhere)
        return everywhere.index_put((edges.cells(),), per_edge).view(edges.shape)

    masks = edges.query_mask, edges.key_mask, edges.key_mask
    query, key, value = (zero_padding(x, mask) for x, mask in zip((query, key, value), masks, strict=True))
    dtype = torch.promote_types(query.dtype, key.dtype)
    scores = query.to(dtype) @ key.to(dtype).mT / query.shape[-1] ** 0.5  # batch heads n_queries n_keys
    if gate is not None:
        gates = spread(gate, 1.0)
        scores = scores * gates if gate_rule == "score" else scores + gates.log()
    mask = edges.to_dense()
    has_edge = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, float("-inf")).masked_fill(~has_edge, 0.0)  # finite without edges too
    weights = torch.softmax(scores, -1).masked_fill(~has_edge, 0.0)  # such a row gets zeros
    if weight_scale is not None:
        weights = weights * spread(weight_scale, 0.0)
    return (weights.to(value.dtype) @ value).to(value.dtype)  # autocast may change the product's type
