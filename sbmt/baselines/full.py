"""Full attention: every query reads every key."""

import torch
from torch import Generator, Tensor, nn

from sbmt.baselines.all_pairs import AllPairsAttention, Masks, keys_to_read


class FullAttention(AllPairsAttention):
    r"""$\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ over all real pairs, by PyTorch's fused kernel.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: On the attention weights while training, in [0, 1). PyTorch draws it from its global generator.

    Cost: O(n² d) time, O(n d) memory where the kernel is fused.

    Paper: equation 1.
    """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """The values; padded tokens come in as zeros."""
        _, key_mask = masks
        dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
        return nn.functional.scaled_dot_product_attention(
            query.to(dtype),
            key.to(dtype),
            value.to(dtype),
            attn_mask=None if key_mask is None else keys_to_read(key_mask)[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
        )
