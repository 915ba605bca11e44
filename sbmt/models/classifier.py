"""A label for the whole sequence."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.errors import check_sizes
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder


def mean_of_real(
    values: Float[Tensor, "batch n d_model"], mask: Bool[Tensor, "batch n"] | None, is_padded_mean: bool = False
) -> Float[Tensor, "batch d_model"]:
    """Mean over real tokens; zeros where there are none.

    Args:
        values: ``(batch, n, d_model)``.
        mask: True = real token; None means all are.
        is_padded_mean: Whether to divide by n instead of by the number of real tokens, as the pipeline that the paper
            uses does.
    """
    if mask is None:
        return values.mean(1)
    count = mask.shape[1] if is_padded_mean else mask.sum(1, keepdim=True).clamp(min=1).to(values.dtype)
    return values.masked_fill(~mask[..., None], 0.0).sum(1) / count


class SequenceClassifier(nn.Module):
    """Encoder, mean over real tokens, and an MLP with one hidden layer.

    Args:
        encoder: What reads the tokens.
        n_labels: Logits per sequence.
        d_hidden: Width inside the head.
        is_padded_mean: See :func:`mean_of_real`.

    A sequence without real tokens pools to zeros.
    """

    def __init__(self, encoder: Encoder, n_labels: int, d_hidden: int, *, is_padded_mean: bool = False) -> None:
        super().__init__()
        check_sizes(n_labels=n_labels, d_hidden=d_hidden)
        d_model = check_encoder(encoder).d_model
        self.encoder, self.is_padded_mean = encoder, is_padded_mean
        self.head = nn.Sequential(nn.Linear(d_model, d_hidden), nn.ReLU(), nn.Linear(d_hidden, n_labels))

    def forward(
        self,
        tokens: Int[Tensor, "batch n *ids"] | Float[Tensor, "batch n d_input"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits ``(batch, n_labels)``; see :class:`~sbmt.models.Encoder` for arguments."""
        encoded = self.encoder(tokens, mask, generator=generator, return_edges=return_edges)
        pooled = mean_of_real(encoded.values, mask, self.is_padded_mean)
        return ModelOutput(self.head(pooled), encoded.attention)
