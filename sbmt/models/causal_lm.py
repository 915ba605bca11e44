"""A language model that predicts each next token from those before, and generates text from a cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor, nn

from sbmt.attention.cache import Cache
from sbmt.errors import SbmtError, check_sizes, describe, is_number
from sbmt.layers import MultiHeadAttention
from sbmt.models.encoder import Encoder, Mask, ModelOutput, Tokens


class CausalLM(nn.Module):
    r"""Causal blocks, and logits of the next token by the embeddings that read the tokens in.

    $$\operatorname{logits}_i = x_i E^\top,$$

    with $x_i$ the vector of token i after the last norm, and $E \in \mathbb{R}^{V \times d}$ the token embeddings.

    Args:
        encoder: Built with ``causal=True``, of tokens with one id each.

    Raises:
        SbmtError: If an attention of the encoder is not causal, or its tokens are not ids.

    Example:
        >>> sizes = dict(d_model=16, d_hidden=32, n_heads=2, n_layers=2)
        >>> encoder = Encoder(11, None, positions="rotary", preset="fitted", n_clusters=16, causal=True, **sizes)
        >>> model = CausalLM(encoder)
        >>> model.generate(torch.tensor([[1, 2, 3]]), 4).shape
        torch.Size([1, 7])
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        if not isinstance(encoder, Encoder):
            raise SbmtError("an Encoder", type(encoder).__name__, "build one, and give it to the model")
        if encoder.vocab_size is None or encoder.token_shape:
            raise SbmtError("an encoder of tokens with one id", "another", "leave d_input and n_ids out")
        for module in encoder.modules():
            if isinstance(module, MultiHeadAttention) and not getattr(module.attention, "causal", False):
                got = type(module.attention).__name__
                raise SbmtError("causal attention in every block", got, "build the encoder with causal=True")
        self.encoder = encoder

    def forward(self, tokens: Tokens, mask: Mask = None, **options: Any) -> ModelOutput:
        """Logits ``(batch, n, vocab_size)``; ``options`` are those of the encoder."""
        encoded = self.encoder(tokens, mask, **options)
        return ModelOutput(encoded.values @ self.encoder.token_embedding.weight.T, encoded.attention)

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "batch n"],
        n_new: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: Generator | None = None,
    ) -> Int[Tensor, "batch n_all"]:
        """Continues sequences token by token, each drawn from the softmax of its logits.

        Args:
            tokens: The beginnings, all of one length.
            n_new: How many tokens to add, at least 1.
            temperature: Divides the logits; 0 takes the most likely token.
            top_k: Leaves all but so many of the most likely tokens out.
            generator: Source of the masks' seeds and of the tokens.

        Returns:
            The beginnings and what follows them.

        Masks are those of eval mode. A token costs, beyond the layers, as much as
        :func:`~sbmt.layers.functional.attend_next` with the preset ``"fitted"``, and otherwise in proportion to the
        context.

        Raises:
            SbmtError: If an argument is out of range, or sequences grow beyond the encoder's ``max_length``.
        """
        check_sizes(n_new=n_new, **({} if top_k is None else {"top_k": top_k}))
        if not is_number(temperature) or not 0 <= temperature < float("inf"):
            raise SbmtError("temperature ≥ 0", describe(temperature), "0 takes the most likely token")
        caches = [Cache() for _ in self.encoder.blocks]
        new = tokens
        with _eval_mode(self):
            for _ in range(n_new):
                logits = self(new, caches=caches, generator=generator).values[:, -1].float()
                if top_k is not None and top_k < logits.shape[-1]:
                    least = logits.topk(top_k).values[:, -1:]
                    logits = logits.masked_fill(logits < least, -torch.inf)
                if temperature == 0:
                    new = logits.argmax(-1, keepdim=True)
                else:
                    new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
                tokens = torch.cat([tokens, new], 1)
        return tokens


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
