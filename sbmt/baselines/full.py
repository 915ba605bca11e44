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

    Cost: O(n² d) time, O(n d) memory where the kernel is fused.

    Source: equation 1 of the paper; for the scaling, Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025).
    """

    is_precise = False

    def __init__(self, d_head: int, n_heads: int, *, is_log_scaled: bool = False, dropout: float = 0.0) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
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
        if self.length_scale is not None:
            n = key_mask.sum(1) if key_mask is not None else torch.tensor([key.shape[2]], device=key.device)
            log_n = n.clamp(min=1).to(self.length_scale.dtype).log()  # batch, or 1
            query = query * (log_n[:, None] * self.length_scale)[..., None, None].to(query.dtype)
        mask = None if key_mask is None else keys_to_read(key_mask)[:, None, None, :]
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
