"""A label for a sentence, or for a pair of sentences read as one sequence."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.attention.inputs import check_dropout
from sbmt.errors import check_choice, check_sizes
from sbmt.models.classifier import mean_of_real
from sbmt.models.encoder import Encoder, ModelOutput, check_encoder

Pooling = Literal["mean", "first"]


def first_of_real(
    values: Float[Tensor, "batch n d_model"], mask: Bool[Tensor, "batch n"] | None
) -> Float[Tensor, "batch d_model"]:
    """The first real token of every example; zeros where there is none.

    Args:
        values: ``(batch, n, d_model)``.
        mask: True = real token; None means all are.

    Example:
        >>> first_of_real(torch.arange(6.0).view(1, 6, 1), torch.arange(6)[None] > 1)
        tensor([[2.]])
    """
    if mask is None:
        return values[:, 0]
    first = values[torch.arange(len(values), device=values.device), mask.int().argmax(1)]  # batch d_model
    return first.masked_fill(~mask.any(1, keepdim=True), 0.0)


class SentenceClassifier(nn.Module):
    r"""Encoder, one vector per sequence, and an MLP with one hidden layer of tanh.

    With x the mean of the real tokens' vectors, or the vector of the first of them,

    $$\operatorname{logits} = \operatorname{drop}(\tanh(\operatorname{drop}(x) W_1^\top + b_1))\, W_2^\top + b_2.$$

    Args:
        encoder: What reads the tokens.
        n_labels: Logits per sequence.
        pooling: ``"mean"``, as in the paper's table of settings, or ``"first"``, as in the pipeline that it uses.
        dropout: Before either linear layer while training, in [0, 1).

    A sequence without real tokens pools to zeros.

    Paper: section 5.3 and Table 7; the head is the pipeline's. Deviation: padding is masked, which the pipeline does
    not do on these tasks.
    """

    def __init__(self, encoder: Encoder, n_labels: int, *, pooling: Pooling = "mean", dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(n_labels=n_labels)
        check_choice("pooling", pooling, Pooling)
        check_dropout(dropout)
        d_model = check_encoder(encoder).d_model
        self.encoder, self.pooling = encoder, pooling
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(d_model, d_model),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(d_model, n_labels),
        )

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
        pool = mean_of_real if self.pooling == "mean" else first_of_real
        return ModelOutput(self.head(pool(encoded.values, mask)), encoded.attention)
