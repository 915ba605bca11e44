"""Models that add a head to an encoder. They are called like the encoder, and pass their ``options`` on to it."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from sbmt.attention.cache import Cache
from sbmt.attention.dispatch import check_dropout
from sbmt.errors import SbmtError, check_sizes, describe, is_number
from sbmt.graph.masks import check_mask, zero_padding
from sbmt.layers import MultiHeadAttention
from sbmt.models.encoder import Encoder, Mask, ModelOutput, Tokens, Vectors


def mean_of_real(values: Vectors, mask: Mask, is_padded_mean: bool = False) -> Float[Tensor, "batch d_model"]:
    """Averages over real tokens, or divides their sum by n if ``is_padded_mean``; zero if there are no real tokens."""
    if mask is None:
        return values.mean(1)
    count = mask.shape[1] if is_padded_mean else mask.sum(1, keepdim=True).clamp(min=1).to(values.dtype)
    return zero_padding(values, mask).sum(1) / count


class Head(nn.Module):
    """An encoder with a head on the mean over real tokens, each of which must be one id if ``has_single_ids``."""

    head: nn.Module
    is_padded_mean = False

    def __init__(self, encoder: Encoder, *, has_single_ids: bool = False, **sizes: int) -> None:
        super().__init__()
        if not isinstance(encoder, Encoder):
            raise SbmtError(f"encoder must be an Encoder, got {type(encoder).__name__}")
        if has_single_ids and (encoder.vocab_size is None or encoder.token_shape):
            kind = type(self).__name__
            raise SbmtError(f"{kind} requires tokens with one id each: build the encoder without d_input and n_ids")
        check_sizes(**sizes)
        self.encoder = encoder

    def forward(self, tokens: Tokens, mask: Mask = None, **options: Any) -> ModelOutput:
        """Returns logits ``(batch, n_labels)``."""
        encoded = self.encoder(tokens, mask, **options)
        return ModelOutput(self.head(mean_of_real(encoded.values, mask, self.is_padded_mean)), encoded.attention)


class SequenceClassifier(Head):
    """A classifier of sequences: an encoder, the mean over real tokens, and an MLP with one hidden layer.

    Args:
        is_padded_mean: Whether to divide by n instead of by the number of real tokens, as the paper's pipeline does.
    """

    n_means = 1  # number of means that the head takes as input

    def __init__(self, encoder: Encoder, n_labels: int, d_hidden: int, *, is_padded_mean: bool = False) -> None:
        super().__init__(encoder, n_labels=n_labels, d_hidden=d_hidden)
        self.is_padded_mean = is_padded_mean
        wide, narrow = nn.Linear(self.n_means * encoder.d_model, d_hidden), nn.Linear(d_hidden, n_labels)
        self.head = nn.Sequential(wide, nn.ReLU(), narrow)


class SentenceClassifier(Head):
    r"""A classifier of sentences: an encoder, the mean x over real tokens, and an MLP with one hidden layer and tanh.

    $$\operatorname{logits} = \operatorname{drop}(\tanh(\operatorname{drop}(x) W_1^\top + b_1))\, W_2^\top + b_2.$$

    Args:
        dropout: Dropout before each linear layer in training, in [0, 1).

    Paper: section 5.3 and Table 7; the head is from the paper's pipeline. Deviation: the mean excludes padding.
    """

    def __init__(self, encoder: Encoder, n_labels: int, *, dropout: float = 0.0) -> None:
        super().__init__(encoder, n_labels=n_labels)
        check_dropout(dropout)
        inner, outer = nn.Linear(encoder.d_model, encoder.d_model), nn.Linear(encoder.d_model, n_labels)
        self.head = nn.Sequential(nn.Dropout(dropout), inner, nn.Tanh(), nn.Dropout(dropout), outer)


class DualEncoder(SequenceClassifier):
    r"""Encodes both documents of a pair separately and compares their means by an MLP on $[x, y, x \odot y, x - y]$.

    Args:
        encoder: The encoder; all arguments are those of :class:`SequenceClassifier`.

    Paper: appendix, retrieval; the head is from the paper's pipeline.
    """

    n_means = 4

    def forward(
        self, tokens: Int[Tensor, "batch 2 n"], mask: Bool[Tensor, "batch 2 n"] | None = None, **options: Any
    ) -> ModelOutput:
        """Returns logits ``(batch, n_labels)`` and the attention of all 2 · batch documents, pair by pair."""
        for name, x in {"tokens": tokens, "mask": tokens if mask is None else mask}.items():
            if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[1] != 2:
                raise SbmtError(f"{name} for pairs must have shape (batch, 2, n), got {describe(x)}")
        flat = None if mask is None else mask.flatten(0, 1)
        encoded = self.encoder(tokens.flatten(0, 1), flat, **options)
        means = mean_of_real(encoded.values, flat, self.is_padded_mean)
        x, y = means[0::2], means[1::2]  # batch d_model
        return ModelOutput(self.head(torch.cat([x, y, x * y, x - y], -1)), encoded.attention)


class TokenHead(Head):
    """A model that computes the logits of each token from its vector alone."""

    def logits(self, values: Float[Tensor, "*tokens d_model"]) -> Float[Tensor, "*tokens n_logits"]:
        """Computes the logits of tokens from their vectors."""
        return self.head(values)

    def forward(self, tokens: Tokens, mask: Mask = None, *, selected: Mask = None, **options: Any) -> ModelOutput:
        """Returns logits ``(batch, n, n_logits)``; ``options`` are those of the encoder.

        With ``selected``, bool ``(batch, n)``, it returns only logits where this is True, ``(n_selected, n_logits)``.
        """
        values, attention = self.encoder(tokens, mask, **options)
        if selected is not None:
            if not isinstance(selected, Tensor) or selected.dtype != torch.bool or selected.shape != values.shape[:2]:
                expected = f"selected must be a bool tensor {tuple(values.shape[:2])}"
                raise SbmtError(f"{expected}, got {describe(selected)}")
            if mask is not None and (n_padding := int((selected & ~mask).sum())):
                raise SbmtError(f"selected must not include padding, but {n_padding} selected tokens are padding")
            values = values[selected]
        return ModelOutput(self.logits(values), attention)


class TokenTagger(TokenHead):
    """A tagger of tokens: an encoder, and a linear layer that is applied to every token.

    Args:
        encoder: The encoder.
        n_labels: Number of logits per token.
    """

    def __init__(self, encoder: Encoder, n_labels: int) -> None:
        super().__init__(encoder, n_labels=n_labels)
        self.head = nn.Linear(encoder.d_model, n_labels)


class MaskedLM(TokenHead):
    r"""An encoder with a head that scores the whole vocabulary at the selected tokens.

    For the encoder's vector x of a token and its token embeddings $E \in \mathbb{R}^{V \times d}$,

    $$\operatorname{logits} = \operatorname{LayerNorm}(\operatorname{GELU}(x W^\top + c))\, E^\top + b.$$

    Input and output share E; $b \in \mathbb{R}^V$ starts at zero.

    Args:
        encoder: An encoder of tokens with one id each.

    Paper: section 5.3, whose pipeline also ties the output layer to the embedding.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder, has_single_ids=True)
        assert encoder.vocab_size is not None
        d_model = encoder.d_model
        self.head = nn.Sequential(nn.Linear(d_model, d_model), nn.GELU(), nn.LayerNorm(d_model))
        self.bias = nn.Parameter(torch.zeros(encoder.vocab_size))

    def logits(self, values: Tensor) -> Tensor:
        """Returns logits for the whole vocabulary."""
        return nn.functional.linear(self.head(values), self.encoder.token_embedding.weight, self.bias)


class CausalLM(TokenHead):
    r"""A causal language model: a causal encoder whose logits for the next token are $x_i E^\top$.

    Here $x_i$ is the vector of token i after the last norm, and $E \in \mathbb{R}^{V \times d}$ are the embeddings.

    Args:
        encoder: An encoder of tokens with one id each, built with ``causal=True``.

    Example:
        >>> sizes = dict(d_model=16, d_hidden=32, n_heads=2, n_layers=2)
        >>> encoder = Encoder(11, None, positions="rotary", preset="fitted", n_clusters=16, causal=True, **sizes)
        >>> model = CausalLM(encoder)
        >>> model.generate(torch.tensor([[1, 2, 3]]), 4).shape
        torch.Size([1, 7])
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder, has_single_ids=True)
        for module in encoder.modules():
            if isinstance(module, MultiHeadAttention) and not getattr(module.attention, "causal", False):
                kind = type(module.attention).__name__
                raise SbmtError(f"{kind} in the encoder is not causal: use attention with causal=True")

    def logits(self, values: Tensor) -> Tensor:
        """Returns logits for the whole vocabulary."""
        return values @ self.encoder.token_embedding.weight.T

    @torch.no_grad()
    def generate(
        self,
        tokens: Int[Tensor, "batch n"],
        n_new: int,
        *,
        mask: Mask = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: Generator | None = None,
    ) -> Int[Tensor, "batch n_all"]:
        """Continues sequences with tokens drawn from the softmax of the logits, and returns the whole sequences.

        Args:
            tokens: The beginnings of the sequences; shorter sequences are padded on the left.
            n_new: Number of tokens to add, at least 1.
            mask: bool ``(batch, n)``, True = real token; None = all real. Each sequence is continued as if it were
                alone, so positions count from its first real token. Sequences of equal length are decoded together.
            temperature: The number by which logits are divided; 0 selects the most likely token.
            top_k: How many of the most likely tokens to draw from; None means all.
            generator: Source of the seeds for masks and of the tokens.

        The model runs in eval mode. With the preset ``"fitted"``, the cost of attention per token is that of
        :func:`~sbmt.layers.functional.attend_next`; otherwise it grows with the length of the context.

        Raises SbmtError if an argument is out of range, sequences grow beyond the encoder's ``max_length``, or a
        sequence is padded on the right or has no real tokens.
        """
        if mask is not None:
            options = {"temperature": temperature, "top_k": top_k, "generator": generator}
            return self._generate_padded(tokens, mask, n_new, options)
        check_sizes(n_new=n_new, **({} if top_k is None else {"top_k": top_k}))
        if not is_number(temperature) or not 0 <= temperature < float("inf"):
            raise SbmtError(f"temperature must be finite and at least 0, got {describe(temperature)}")
        caches = [Cache() for _ in self.encoder.blocks]
        new, was_training = tokens, self.training
        self.eval()
        try:
            for _ in range(n_new):
                logits = self(new, caches=caches, generator=generator).values[:, -1].float()
                if top_k is not None:
                    least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                    logits = logits.masked_fill(logits < least, -torch.inf)
                if temperature == 0:
                    new = logits.argmax(-1, keepdim=True)
                else:
                    new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
                tokens = torch.cat([tokens, new], 1)
        finally:
            self.train(was_training)
        return tokens

    def _generate_padded(self, tokens: Tensor, mask: Tensor, n_new: int, options: dict[str, Any]) -> Tensor:
        """Implements :meth:`generate` for padded sequences, one length at a time."""
        check_mask("mask", mask, tokens.shape[0], tokens.shape[1], tokens.device)
        n_real = mask.sum(1)
        is_left = (mask[:, 1:] >= mask[:, :-1]).all(1) & (n_real > 0)
        if not bool(is_left.all()):
            row = int((~is_left).nonzero()[0])
            raise SbmtError("padding on the left only", f"padding elsewhere in row {row}", "pad sequences on the left")
        found = torch.cat([tokens, tokens.new_zeros(len(tokens), n_new)], 1)
        for n in n_real.unique().tolist():
            rows = n_real == n
            found[rows, -n - n_new :] = self.generate(tokens[rows, -n:], n_new, **options)
        return found
