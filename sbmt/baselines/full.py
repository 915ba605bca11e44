"""Full attention: every query reads every key."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.all_pairs import all_pairs_output
from sbmt.errors import check_sizes
from sbmt.graph.padding import check_mask, zero_padding
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
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        is_read = None
        if key_mask is not None:
            is_read = key_mask[:, None, None, :]
            is_read = is_read | ~is_read.any(-1, keepdim=True)  # an example without keys stays finite, then is zeroed
        dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
        values = nn.functional.scaled_dot_product_attention(
            zero_padding(query, query_mask).to(dtype),
            zero_padding(key, key_mask).to(dtype),
            zero_padding(value, key_mask).to(dtype),
            attn_mask=is_read,
            dropout_p=self.dropout if self.training else 0.0,
        ).to(value.dtype)
        return all_pairs_output(values, key.shape[2], query_mask, key_mask, return_edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, dropout={self.dropout}"
