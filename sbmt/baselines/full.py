"""Full attention: every query reads every key."""

import torch
from torch import Tensor, nn

from sbmt.baselines.base import Baseline, Inputs, keys_to_read

LENGTH_SCALE = 0.168  # s at the start: the inverse of the mean of ln n over all n up to 1,024


class FullAttention(Baseline):
    r"""$\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ over all real pairs, by PyTorch's fused kernel.

    The more keys there are, the more a score must stand out to get the same weight. With ``is_log_scaled`` it is
    $\operatorname{softmax}(s \ln n \cdot Q K^\top / \sqrt d)\, V$, where n is the number of an example's real keys and
    s is learned, one per head: the logarithm makes up for that, at lengths never seen in training too.

    Args:
        is_log_scaled: Whether scores are multiplied by s · ln n, with a learned s per head.
        dropout: On the attention weights, from PyTorch's global generator.
        causal: Whether no query reads a later key; n then counts the keys that it may read.

    Cost: O(n² d) time, O(n d) memory where the kernel is fused.

    Source: equation 1 of the paper; for the scaling, Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025).
    """

    is_precise = False

    def __init__(
        self, d_head: int, n_heads: int, *, is_log_scaled: bool = False, dropout: float = 0.0, causal: bool = False
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout, causal=causal)
        self.is_log_scaled = is_log_scaled
        self.length_scale = nn.Parameter(torch.empty(n_heads)) if is_log_scaled else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the learned scale, if there is one, to its start."""
        if self.length_scale is not None:
            nn.init.constant_(self.length_scale, LENGTH_SCALE)

    def attend(self, inputs: Inputs) -> Tensor:
        """The values."""
        query, key, value, _, key_mask, dropout, *_ = inputs
        n_queries, n_keys = query.shape[2], key.shape[2]
        if self.length_scale is not None:
            is_real = torch.ones(1, n_keys, dtype=torch.bool, device=key.device) if key_mask is None else key_mask
            n = is_real.cumsum(1)[:, n_keys - n_queries :] if self.causal else is_real.sum(1, keepdim=True)
            log_n = n.clamp(min=1).to(self.length_scale.dtype).log()  # batch or 1, n_queries or 1
            query = query * (log_n[:, None] * self.length_scale[:, None])[..., None].to(query.dtype)
        mask = None if key_mask is None else keys_to_read(key_mask)[:, None, None, :]
        is_triangle = self.causal and mask is None and n_queries == n_keys
        if self.causal and not is_triangle:
            seen = torch.ones(n_queries, n_keys, dtype=torch.bool, device=key.device).tril(n_keys - n_queries)
            mask = seen if mask is None else seen & mask
            mask = mask | ~mask.any(-1, keepdim=True)  # of padded queries before all real keys
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=is_triangle
        )
