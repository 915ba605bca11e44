"""Full attention: every query attends to every key."""

import torch
from torch import Tensor, nn

from sbmt.baselines.base import Baseline, Inputs, keys_to_read


class FullAttention(Baseline):
    r"""Full attention, $\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ over all real pairs, by PyTorch's fused kernel.

    Args:
        dropout: Dropout of the attention weights, which draws from PyTorch's global generator.
        causal: If True, no query attends to a later key.

    Cost: O(n² d) time, O(n d) memory where the kernel is fused. Source: equation 1 of the paper.
    """

    is_precise = False

    def attend(self, inputs: Inputs) -> Tensor:
        """Computes the values by PyTorch's ``scaled_dot_product_attention``."""
        query, key, value, _, key_mask, dropout, *_ = inputs
        n_queries, n_keys = query.shape[2], key.shape[2]
        mask = None if key_mask is None else keys_to_read(key_mask)[:, None, None, :]
        is_triangle = self.causal and mask is None and n_queries == n_keys
        if self.causal and not is_triangle and n_queries > 1:  # a single query is the last token
            seen = torch.ones(n_queries, n_keys, dtype=torch.bool, device=key.device).tril(n_keys - n_queries)
            mask = seen if mask is None else seen & mask
            mask = mask | ~mask.any(-1, keepdim=True)  # so that queries without a real key stay finite
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_triangle
        )
