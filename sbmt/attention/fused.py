"""Attention over all pairs by PyTorch's own kernel under a mask: the fastest way where a mask is nearly full."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from sbmt.attention.inputs import EdgeTerms
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import zero_padding
from sbmt.types import accumulator


def attend_fused(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms
) -> tuple[Tensor, Tensor | None]:
    """:func:`torch.nn.functional.scaled_dot_product_attention` under the mask; neither gates nor dropout are used.

    A bias and a sink, which is a key of zeros with a value of zeros, enter as numbers that the kernel adds to scores.
    Cost: O(n² d) time, O(n²) memory for the mask.
    """
    dtype = accumulator(value) if query.device.type == "cpu" else torch.promote_types(query.dtype, key.dtype)
    masks = edges.query_mask, edges.key_mask, edges.key_mask
    tokens = zip((query, key, value), masks, strict=True)
    query, key, values = (zero_padding(x, mask).to(dtype) for x, mask in tokens)
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
