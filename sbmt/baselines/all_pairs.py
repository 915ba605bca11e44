"""What attentions that leave no pair out have in common."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import count_pairs
from sbmt.types import AttentionOutput


def all_pairs_output(
    values: Float[Tensor, "batch heads n_queries d_value"],
    n_keys: int,
    query_mask: Bool[Tensor, "batch n_queries"] | None,
    key_mask: Bool[Tensor, "batch n_keys"] | None,
    return_edges: bool,
) -> AttentionOutput:
    """The output of an attention in which every real query reads every real key, exactly or in approximation.

    Padded queries, and all queries of an example without keys, get zeros. The density is 1, or 0 without real pairs.

    Args:
        values: ``(batch, heads, n_queries, d_value)``; what stands at padded queries is never looked at.
        n_keys: Number of keys, padding included.
        query_mask: bool ``(batch, n_queries)``, True = real token.
        key_mask: bool ``(batch, n_keys)``, True = real token.
        return_edges: Whether to list all real pairs as edges: O(n²) memory.
    """
    batch, heads, n_queries, _ = values.shape
    shape = (batch, heads, n_queries, n_keys)
    if key_mask is not None:
        values = values.masked_fill(~key_mask.any(-1)[:, None, None, None], 0.0)
    if query_mask is not None:
        values = values.masked_fill(~query_mask[:, None, :, None], 0.0)
    has_pairs = count_pairs(shape, query_mask, key_mask, values.device) > 0
    density = has_pairs[:, None].expand(batch, heads).to(values.dtype)
    edges = None
    if return_edges:
        everything = torch.ones(shape, dtype=torch.bool, device=values.device)
        for mask, view in ((query_mask, (batch, 1, -1, 1)), (key_mask, (batch, 1, 1, -1))):
            everything = everything if mask is None else everything & mask.reshape(view)
        edges = EdgeList.from_dense(everything, query_mask, key_mask)
    return AttentionOutput(values, density, density, edges)
