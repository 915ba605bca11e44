"""The token behind every mask."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.models.embedding import IdEmbedding
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder, check_selected


class MaskedLM(nn.Module):
    r"""Encoder, and a head that scores the whole vocabulary at the tokens it is asked about.

    With x the encoder's vector of a token and $E \in \mathbb{R}^{V \times d}$ the encoder's token embeddings,

    $$\operatorname{logits} = \operatorname{LayerNorm}(\operatorname{GELU}(x W^\top + c))\, E^\top + b.$$

    E is the same tensor that reads the tokens in, so only W, c, the norm and $b \in \mathbb{R}^V$ are new; b starts at
    zeros.

    Args:
        encoder: What reads the tokens.

    Raises:
        SbmtError: If a token of the encoder is not one id.

    Cost: that of the encoder, and O(d (d + V)) time and O(d + V) memory for each token asked about; others are free.

    Paper: section 5.3, whose pipeline ties the output layer to the embedding too.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        vocab_size, d_model = check_encoder(encoder).token_embedding.weight.shape
        if not isinstance(encoder.token_embedding, IdEmbedding) or d_model != encoder.d_model:
            raise SbmtError("an encoder of tokens with one id", "another", "leave d_input and n_ids out")
        self.encoder = encoder
        self.head = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.LayerNorm(d_model))
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        selected: Bool[Tensor, "batch n"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits of the vocabulary.

        Args:
            tokens: int64 ``(batch, n)``, in [0, vocab_size).
            mask: bool ``(batch, n)``, True = real token.
            selected: bool ``(batch, n)``, True = asked about; None asks about every place.
            generator: Source of the masks' seeds.
            return_edges: Whether each layer's output carries its edges.

        Returns:
            Logits ``(n_selected, vocab_size)``, example by example and in each from left to right; without
            ``selected`` ``(batch, n, vocab_size)``.

        Raises:
            SbmtError: If ``selected`` does not fit the tokens, or asks about padding.
        """
        encoded = self.encoder(tokens, mask, generator=generator, return_edges=return_edges)
        x = encoded.values
        if selected is not None:
            check_selected(selected, x, mask)
            x = x[selected]  # n_selected d_model
        logits = nn.functional.linear(self.head(x), self.encoder.token_embedding.weight, self.bias)
        return ModelOutput(logits, encoded.attention)
