"""The straight-through gate: how gradients pass through a coin flip."""

from jaxtyping import Float
from torch import Tensor

from sbmt.errors import SbmtError


def straight_through_gate(probability: Float[Tensor, " n_edges"]) -> Float[Tensor, " n_edges"]:
    r"""$1 + p - \mathrm{sg}(p)$: exactly one in the forward pass, the identity in $p$ in the backward pass.

    A sampled edge multiplies its score by this gate. The value of the attention is that of the sampled mask, and the
    loss's gradient with respect to the gate arrives at the edge's probability unchanged:
    $\partial L/\partial p_{ij} := \partial L/\partial M_{ij}$ for sampled edges, 0 elsewhere.

    Args:
        probability: ``(n_edges,)``, edge probabilities *without* exploration and without the clamp to 1.

    Returns:
        ``(n_edges,)`` of ones.

    Paper: equation 9.

    Example:
        >>> import torch
        >>> p = torch.tensor([0.3, 0.7], requires_grad=True)
        >>> gate = straight_through_gate(p)
        >>> (gate * torch.tensor([2.0, 5.0])).sum().backward()
        >>> gate.tolist(), p.grad.tolist()
        ([1.0, 1.0], [2.0, 5.0])
    """
    if not isinstance(probability, Tensor) or not probability.is_floating_point():
        got = probability.dtype if isinstance(probability, Tensor) else type(probability).__name__
        raise SbmtError("probabilities as a floating-point tensor", got, "take those of BlockModel.edge_probability")
    return 1 + (probability - probability.detach())  # the difference first: 1 + p − p may miss 1 by rounding
