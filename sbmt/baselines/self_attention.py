"""What attentions share in which a token is query and key at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.graph.padding import check_mask


def one_mask(query: Tensor, key: Tensor, query_mask: Tensor | None, key_mask: Tensor | None) -> Bool[Tensor, "batch n"]:
    """Which tokens are real, as queries and keys alike.

    Raises:
        SbmtError: If queries and keys differ in number or in their masks.
    """
    batch, _, n_tokens, _ = query.shape
    do = "this is self-attention, where a token is query and key at once"
    if key.shape[2] != n_tokens:
        raise SbmtError("as many keys as queries", f"{n_tokens} queries and {key.shape[2]} keys", do)
    device = query.device
    all_real = torch.ones((batch, n_tokens), dtype=torch.bool, device=device)
    query_mask = check_mask("query_mask", all_real if query_mask is None else query_mask, batch, n_tokens, device)
    key_mask = check_mask("key_mask", all_real if key_mask is None else key_mask, batch, n_tokens, device)
    assert query_mask is not None and key_mask is not None  # only None becomes None
    if not torch.equal(query_mask, key_mask):
        raise SbmtError("query_mask and key_mask alike", "two that differ (None means all real)", do)
    return query_mask


def directions(x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
    """Vectors brought to length 1; zeros stay zeros."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0, 1.0)
