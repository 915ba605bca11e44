"""A label for the whole sequence."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.errors import check_sizes
from sbmt.models.encoder import Encoder, ModelOutput


class SequenceClassifier(nn.Module):
    """Encoder, mean over real tokens, and an MLP with one hidden layer.

    Args:
        encoder: What reads the tokens.
        n_labels: Logits per sequence.
        d_hidden: Width inside the head.

    A sequence without real tokens pools to zeros.
    """

    def __init__(self, encoder: Encoder, n_labels: int, d_hidden: int) -> None:
        super().__init__()
        check_sizes(n_labels=n_labels, d_hidden=d_hidden)
        d_model = encoder.token_embedding.embedding_dim
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(d_model, d_hidden), nn.ReLU(), nn.Linear(d_hidden, n_labels))

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits ``(batch, n_labels)``; see :class:`~sbmt.models.Encoder` for arguments."""
        encoded = self.encoder(tokens, mask, generator=generator, return_edges=return_edges)
        if mask is None:
            pooled = encoded.values.mean(1)  # batch d_model
        else:
            real = mask[..., None].to(encoded.values.dtype)
            pooled = (encoded.values * real).sum(1) / real.sum(1).clamp(min=1)
        return ModelOutput(self.head(pooled), encoded.attention)
