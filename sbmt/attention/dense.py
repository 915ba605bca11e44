"""Attention over all pairs under a mask: the backend to read first, and PyTorch's own kernel for nearly full masks.

The first is what all others are tested against.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from sbmt.attention.inputs import Attended, EdgeTerms
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import zero_padding
from sbmt.types import accumulator


def attend_dense(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Masked softmax attention over all pairs. O(n² d) time, O(n²) memory; see :func:`sbmt.edge_attention`."""

    def spread(per_edge: Tensor, elsewhere: float) -> Tensor:
        everywhere = per_edge.new_full((edges.cell_count,), elsewhere)
        return everywhere.index_put((edges.cells(),), per_edge).view(edges.shape)

    query, key, value = _without_padding(query, key, value, edges)
    dtype = torch.promote_types(query.dtype, key.dtype)
    scaled = query.to(dtype) / query.shape[-1] ** 0.5  # before the product, which could be too large for float16
    scores = scaled @ key.to(dtype).mT  # batch heads n_queries n_keys
    if terms.gate is not None:
        gates = spread(terms.gate, 1.0)
        scores = scores * gates if terms.gate_rule == "score" else scores + gates.log()
    if terms.bias is not None:
        scores = scores + spread(terms.bias, 0.0)
    mask = edges.to_dense()
    has_edge = mask.any(-1, keepdim=True)
    scores = scores.masked_fill(~mask, float("-inf")).masked_fill(~has_edge, 0.0)  # finite without edges too
    if terms.sink is not None:  # one more column
        sink = terms.sink[:, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sink], -1)
    weights = torch.softmax(scores, -1)[..., : key.shape[2]].masked_fill(~has_edge, 0.0)  # such a row gets zeros
    per_edge = weights.flatten()[edges.cells()].to(accumulator(value)) if terms.return_weights else None
    if terms.weight_scale is not None:
        weights = weights * spread(terms.weight_scale, 0.0)
    return (weights.to(value.dtype) @ value).to(value.dtype), per_edge  # autocast may change the product's type


def is_fusible(edges: EdgeList, terms: EdgeTerms) -> bool:
    """Whether PyTorch's own kernel can do what is asked for: no gates, no dropout of edges, no weights to return."""
    return edges.n_edges > 0 and terms.gate is None and terms.weight_scale is None and not terms.return_weights


def attend_fused(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """:func:`torch.nn.functional.scaled_dot_product_attention` under the mask, where it :func:`is_fusible`.

    A bias and a sink, which is a key of zeros with a value of zeros, enter as numbers that the kernel adds to scores.
    Cost: O(n² d) time, O(n²) memory for the mask.
    """
    if not is_fusible(edges, terms):
        return attend_dense(query, key, value, edges, terms)
    dtype = accumulator(value) if query.device.type == "cpu" else torch.promote_types(query.dtype, key.dtype)
    query, key, values = (x.to(dtype) for x in _without_padding(query, key, value, edges))
    if edges.n_edges == edges.cell_count and terms.bias is None and terms.sink is None:
        return scaled_dot_product_attention(query, key, values).to(value.dtype), None
    mask = edges.to_dense()
    has_edge = (edges.degrees() > 0).view(*edges.shape[:3], 1)
    if is_some_row_empty := not has_edge.all():
        mask = mask | ~has_edge  # a softmax needs a key, and finite scores
        query = query.masked_fill(~has_edge, 0.0)
    if terms.bias is not None or terms.sink is not None:
        added = query.new_full(edges.shape, float("-inf")).masked_fill(mask, 0.0)
        if terms.bias is not None:
            added = added.flatten().index_put((edges.cells(),), terms.bias.to(dtype)).view(edges.shape)
        if terms.sink is not None:
            column = terms.sink.to(dtype)[:, None, None].expand(*edges.shape[:3], 1)
            added = torch.cat([added, column], -1)
            key, values = (pad(x, (0, 0, 0, 1)) for x in (key, values))
        mask = added
    out = scaled_dot_product_attention(query, key, values, attn_mask=mask)
    return (out.masked_fill(~has_edge, 0.0) if is_some_row_empty else out).to(value.dtype), None


def _without_padding(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList) -> tuple[Tensor, Tensor, Tensor]:
    """The tokens with zeros at padding, which may hold anything."""
    return zero_padding(query, edges.query_mask), zero_padding(key, edges.key_mask), zero_padding(value, edges.key_mask)
