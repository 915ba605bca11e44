"""A label for every token."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.errors import check_sizes
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder, check_selected


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
        self.head = nn.Linear(encoder.d_model, n_labels)

    def forward(
        self,
        tokens: Int[Tensor, "batch n *ids"] | Float[Tensor, "batch n d_input"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        selected: Bool[Tensor, "batch n"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Logits ``(batch, n, n_labels)``; see :class:`~sbmt.models.Encoder` for arguments.

        If ``selected`` is given, only the tokens where it is True get logits, ``(n_selected, n_labels)``, as in
        :class:`~sbmt.models.MaskedLM`.
        """
        encoded = self.encoder(tokens, mask, generator=generator, return_edges=return_edges)
        x = encoded.values
        if selected is not None:
            check_selected(selected, x, mask)
            x = x[selected]  # n_selected d_model
        return ModelOutput(self.head(x), encoded.attention)
