"""What every attention returns."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class AttentionOutput:
    """Values of an attention together with what they cost.

    Attributes:
        values: ``(batch, heads, n_queries, d)``; padded queries and queries without a key are zero.
        density: ``(batch, heads)``, share of the real query-key pairs that were attended, in [0, 1].
            Its gradient with respect to the block model is straight-through (see :mod:`sbmt.block_model.density`).
        expected_density: ``(batch, heads)``, mean edge probability over real pairs without exploration.
            Equals ``density`` for attentions that draw nothing. Where it has no closed form, it is an unbiased estimate
            from the edges that were drawn.
        edges: The :class:`~sbmt.graph.edges.EdgeList` that was attended, if it was asked for.
        auxiliary_loss: A scalar to be added to the loss of the task: how badly a block model that learns by likelihood
            explains the attention (:mod:`sbmt.block_model.fit`; not computed, and 0, where gradients are off), or how
            far tokens are from the centroids of :class:`~sbmt.baselines.RoutingAttention`. 0 for everything else.
    """

    values: Float[Tensor, "batch heads n_queries d"]
    density: Float[Tensor, "batch heads"]
    expected_density: Float[Tensor, "batch heads"]
    edges: Any = None  # an EdgeList, which this file cannot import: it stands below all others
    auxiliary_loss: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))
