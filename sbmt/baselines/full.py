"""Full attention: every query reads every key."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.dispatch import check_attention_inputs, check_dropout
from sbmt.edges import EdgeList, check_mask, count_pairs
from sbmt.errors import check_sizes
from sbmt.types import AttentionOutput


class FullAttention(nn.Module):
    r"""$\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ over all real pairs, by PyTorch's fused kernel.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: On the attention weights while training, in [0, 1). PyTorch draws it from its global generator.

    Cost: O(n² d) time, O(n d) memory where the kernel is fused.

    Paper: equation 1.
    """

    def __init__(self, d_head: int, n_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.dropout = d_head, n_heads, dropout

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Attends all real keys; see :class:`~sbmt.layers.SBMAttention` for arguments."""
        check_attention_inputs(query, key, value)
        batch, heads, n_queries, _ = query.shape
        shape = (batch, heads, n_queries, key.shape[2])
        query_mask = check_mask("query_mask", query_mask, batch, n_queries)
        key_mask = check_mask("key_mask", key_mask, batch, shape[3])
        dropout = self.dropout if self.training else 0.0
        if key_mask is None:
            values = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        else:
            is_key = key_mask[:, None, None, :]
            has_key = is_key.any(-1, keepdim=True)
            is_read = is_key | ~has_key  # an example without keys stays finite, then is zeroed
            values = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=is_read, dropout_p=dropout)
            values = values.masked_fill(~has_key, 0.0)
        if query_mask is not None:
            values = values.masked_fill(~query_mask[:, None, :, None], 0.0)
        density = (count_pairs(shape, query_mask, key_mask, query.device) > 0)[:, None].expand(batch, heads)
        edges = None
        if return_edges:
            everything = torch.ones(shape, dtype=torch.bool, device=query.device)
            for mask, view in ((query_mask, (batch, 1, -1, 1)), (key_mask, (batch, 1, 1, -1))):
                everything = everything if mask is None else everything & mask.reshape(view)
            edges = EdgeList.from_dense(everything, query_mask, key_mask)
        return AttentionOutput(values, density.to(query.dtype), density.to(query.dtype), edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, dropout={self.dropout}"
