"""A label for every token."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.errors import check_sizes
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder


class TokenTagger(nn.Module):
    """Encoder and one linear layer per token.

    Args:
        encoder: What reads the tokens.
        n_labels: Logits per token.
    """

    def __init__(self, encoder: Encoder, n_labels: int) -> None:
        super().__init__()
        check_sizes(n_labels=n_labels)
        self.encoder = check_encoder(encoder)
        self.head = nn.Linear(encoder.token_embedding.embedding_dim, n_labels)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits ``(batch, n, n_labels)``; see :class:`~sbmt.models.Encoder` for arguments."""
        encoded = self.encoder(tokens, mask, generator=generator, return_edges=return_edges)
        return ModelOutput(self.head(encoded.values), encoded.attention)
