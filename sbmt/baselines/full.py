"""Full attention: every query reads every key."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from sbmt.baselines.all_pairs import AllPairsAttention, Masks, keys_to_read
from sbmt.registration import option

LENGTH_SCALE = 0.168
"""s at the start: the inverse of the mean of ln n over all n up to 1,024."""


@dataclass(frozen=True)
class FullOptions:
    """Options of :class:`FullAttention`."""

    is_log_scaled: bool | None = option(None, "multiply scores by s · ln n, with a learned s per head")


class FullAttention(AllPairsAttention):
    r"""$\operatorname{softmax}(Q K^\top / \sqrt d)\, V$ over all real pairs, by PyTorch's fused kernel.

    With ``is_log_scaled`` it is $\operatorname{softmax}(s \ln n \cdot Q K^\top / \sqrt d)\, V$, where n is the number
    of an example's real keys and s is learned, one per head. The more keys there are, the more a score must stand out
    to get the same weight, and the logarithm makes up for that, at lengths never seen in training too.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        is_log_scaled: Whether scores grow with the logarithm of the number of keys.
        dropout: On the attention weights while training, in [0, 1). PyTorch draws it from its global generator.

    Cost: O(n² d) time, O(n d) memory where the kernel is fused.

    Source of the scaling: Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025).

    Paper: equation 1.
    """

    def __init__(self, d_head: int, n_heads: int, *, is_log_scaled: bool = False, dropout: float = 0.0) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        self.length_scale = nn.Parameter(torch.full((n_heads,), LENGTH_SCALE)) if is_log_scaled else None
        self.is_log_scaled = is_log_scaled
        if is_log_scaled:
            self.settings = (*self.settings, "is_log_scaled")

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """The values; padded tokens come in as zeros."""
        _, key_mask = masks
        dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
        if self.length_scale is not None:
            n = self.length_scale.new_tensor([key.shape[2]]) if key_mask is None else key_mask.sum(1)  # batch, or 1
            log_n = n.clamp(min=1).to(self.length_scale.dtype).log()
            query = query * (log_n[:, None] * self.length_scale)[..., None, None].to(query.dtype)
        return nn.functional.scaled_dot_product_attention(
            query.to(dtype),
            key.to(dtype),
            value.to(dtype),
            attn_mask=None if key_mask is None else keys_to_read(key_mask)[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
        )
