"""Powers of two that bring what tiles multiply into the range of 16-bit numbers.

float64 is scaled likewise, which changes nothing, and multiplied as it is.
"""

import torch
from torch import Tensor

MOST = 2.0**15  # a 16-bit number holds 65504
KEY_SCALE = 2.0**14  # of the keys' rate factors, memberships of at most 1


def power_below_most(numbers: Tensor) -> Tensor:
    """Powers of two that bring numbers ≥ 0 below ``MOST``, and above its half if they are no tinier than 2⁻⁹⁰."""
    exponent = torch.frexp(numbers).exponent.clamp(-90, 90)
    return MOST * torch.exp2(-exponent.to(numbers.dtype))


def split(rates: Tensor, scale: Tensor | float) -> tuple[Tensor, Tensor | None]:
    """Numbers times a power of two, as sums of two 16-bit ones: tensor cores multiply them with 22 bits.

    Where the largest product is near ``MOST``, so many bits are right relative to it. float64 has no second part.
    """
    scaled = rates * scale
    if rates.dtype == torch.float64:
        return scaled, None
    high = scaled.half()
    return high, (scaled - high.float()).half()


def largest_slopes(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_mask: Tensor | None,
    key_mask: Tensor | None,
    grad_out: Tensor,
    largest_weight: Tensor,
    is_score_rule: bool,
) -> Tensor:
    """A bound for the gradients of the gates of every query's pairs, ``(batch, heads, n_queries)``.

    With weights w: |s · w · (dw − Σ w dw)| ≤ ‖q‖ ‖k‖ / √d · w · 2 ‖dout‖ ‖v‖, and without s under the weight rule.
    """

    def lengths(vectors: Tensor, mask: Tensor | None) -> Tensor:
        found = torch.linalg.vector_norm(vectors, dim=-1, dtype=largest_weight.dtype)
        return found if mask is None else found.masked_fill(~mask[:, None], 0.0)

    slopes = 2 * largest_weight * lengths(grad_out, query_mask) * lengths(value, key_mask).amax(-1, keepdim=True)
    if is_score_rule:
        longest = lengths(key, key_mask).amax(-1, keepdim=True) * query.shape[3] ** -0.5
        slopes = slopes * (lengths(query, query_mask) * longest)
    return slopes
