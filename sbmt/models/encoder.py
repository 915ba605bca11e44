"""The pre-LN encoder: embeddings, positions, blocks and a final norm."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor, nn

from sbmt.attention.cache import Cache
from sbmt.attention.dispatch import check_dropout
from sbmt.errors import SbmtError, check_choice, check_sizes, describe, is_number
from sbmt.graph.masks import check_mask, zero_padding
from sbmt.layers import MultiHeadAttention
from sbmt.layers.rotary import RotaryPositions
from sbmt.types import AttentionOutput, check_no_proxies, is_fake

Positions = Literal["learned", "rotary", "none"]
Tokens = Int[Tensor, "batch n *ids"] | Float[Tensor, "batch n d_input"]
Vectors = Float[Tensor, "batch n d_model"]
Mask = Bool[Tensor, "batch n"] | None  # True = real token; None = all real


class EncoderBlock(nn.Module):
    """A pre-LN block: x + attention(norm(x)), then x + MLP(norm(x)) with GELU; the attention gets ``arguments``."""

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        n_heads: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(d_hidden=d_hidden)
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads, attention_dropout, **arguments)
        self.mlp_norm = nn.LayerNorm(d_model)
        wide, narrow = nn.Linear(d_model, d_hidden), nn.Linear(d_hidden, d_model)
        self.mlp = nn.Sequential(wide, nn.GELU(), nn.Dropout(dropout), narrow)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Vectors, key_padding_mask: Mask = None, **options: Any) -> tuple[Vectors, AttentionOutput]:
        """Returns the new token vectors and the output of the attention layer, which also gets ``options``."""
        y = self.attention_norm(x)
        y, attended = self.attention(y, y, y, key_padding_mask, **options)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.mlp_norm(x))), attended


class ModelOutput(NamedTuple):
    """The output of a model: ``values`` and ``attention``, one :class:`~sbmt.types.AttentionOutput` per layer."""

    values: Tensor  # the encoder's token vectors (batch, n, d_model), or a head's logits
    attention: tuple[AttentionOutput, ...]


class Encoder(nn.Module):
    """An encoder: token embeddings, positions, blocks, and a final norm.

    Args:
        vocab_size: Number of token ids; None if tokens are vectors.
        max_length: Length of the longest sequence; None means no limit.
        d_model: Width of the token vectors; ``d_hidden`` is the width inside each block's MLP.
        n_heads: Number of heads in each of the ``n_layers`` blocks.
        dropout: Dropout after the embedding, attention and MLPs, in [0, 1).
        embedding_std: Initial standard deviation of the embeddings.
        n_ids: Number of ids that make up a token; their embeddings, narrower by this factor, are concatenated.
        d_input: Width of the tokens if they are vectors; replaces ``vocab_size``.
        positions: ``"learned"`` adds a table of ``max_length`` vectors to the embeddings; ``"rotary"`` rotates queries
            and keys (:class:`~sbmt.layers.rotary.RotaryPositions`); ``"none"`` omits positions. None means learned
            positions if ``max_length`` is given, and no positions otherwise.
        convolution: Width of a depthwise causal convolution, whose output is added to the embeddings, so that a single
            attention layer can match pairs of neighbouring tokens; 0 means no convolution.
        **arguments: Further arguments of :class:`EncoderBlock`, such as ``attention="full"``, and of its attention.

    Paper: section 5; pre-LN and GELU are taken from the paper's pipeline.
    """

    def __init__(
        self,
        vocab_size: int | None,
        max_length: int | None,
        *,
        d_model: int,
        d_hidden: int,
        n_heads: int,
        n_layers: int,
        dropout: float = 0.0,
        embedding_std: float = 0.02,
        n_ids: int = 1,
        d_input: int | None = None,
        positions: Positions | None = None,
        convolution: int = 0,
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        if not is_number(embedding_std) or not 0 <= embedding_std < 1e30:
            raise SbmtError(f"embedding_std must be in [0, 1e30), got {embedding_std}: start with 0.02")
        if (vocab_size is None) == (d_input is None):
            raise SbmtError(f"pass either vocab_size or d_input, got {'neither' if d_input is None else 'both'}")
        optional = {"vocab_size": vocab_size, "d_input": d_input, "max_length": max_length}
        sizes = {name: size for name, size in optional.items() if size is not None}
        check_sizes(d_model=d_model, n_heads=n_heads, n_layers=n_layers, n_ids=n_ids, **sizes)
        if d_model % n_ids:
            raise SbmtError(f"n_ids must divide d_model = {d_model}, got {n_ids}")
        if positions is None:
            positions = "none" if max_length is None else "learned"
        check_choice("positions", positions, Positions)
        if positions == "learned" and max_length is None:
            raise SbmtError("learned positions require max_length: pass it, or use rotary positions")
        if positions == "rotary" and "transform_heads" in arguments:
            raise SbmtError("pass either positions='rotary' or transform_heads, got both")
        self.d_model, self.max_length, self.vocab_size, self.positions = d_model, max_length, vocab_size, positions
        self.token_embedding: nn.Embedding | nn.Linear
        if d_input is None:
            self.token_shape = (n_ids,) if n_ids > 1 else ()
            self.token_embedding = nn.Embedding(sizes["vocab_size"], d_model // n_ids)
        else:
            self.token_shape = (d_input,)
            self.token_embedding = nn.Linear(d_input, d_model)
            nn.init.zeros_(self.token_embedding.bias)
        nn.init.normal_(self.token_embedding.weight, std=embedding_std / (d_input or 1) ** 0.5)
        self.position_embedding = None
        if positions == "learned":
            self.position_embedding = nn.Embedding(sizes["max_length"], d_model)
            nn.init.normal_(self.position_embedding.weight, std=embedding_std)
        if positions == "rotary":
            arguments["transform_heads"] = RotaryPositions(d_model // n_heads)
        self.convolution = None
        if convolution:
            check_sizes(convolution=convolution)
            self.convolution = nn.Conv1d(d_model, d_model, convolution, groups=d_model)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(d_model, d_hidden, n_heads, dropout=dropout, **arguments) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(
        self,
        tokens: Tokens,
        mask: Mask = None,
        *,
        generator: Generator | None = None,
        return_edges: bool = False,
        caches: Sequence[Cache] | None = None,
    ) -> ModelOutput:
        """Encodes a batch of token sequences.

        Args:
            tokens: int64 ids ``(batch, n)`` or ``(batch, n, n_ids)``, or vectors ``(batch, n, d_input)``.
            mask: bool ``(batch, n)``, True = real token.
            generator: Source of the seeds for masks.
            return_edges: Whether each layer's output includes its edges.
            caches: The caches of earlier tokens, one per layer (:class:`~sbmt.attention.cache.Cache`).
        """
        first = caches[0].length if caches else 0
        self._check(tokens, first)
        mask = check_mask("mask", mask, tokens.shape[0], tokens.shape[1], tokens.device)
        if self.vocab_size is None:
            tokens = zero_padding(tokens, mask)  # padded vectors may contain NaN
        x = self.token_embedding(tokens).flatten(2)  # batch n d_model
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[first : first + x.shape[1]]
        if self.convolution is not None:
            x = x + self._convolve(zero_padding(x, mask), caches[0] if caches else None)
        x = self.dropout(x)
        padding, attention = None if mask is None else ~mask, []
        of_blocks: Sequence[Cache | None] = caches or [None] * len(self.blocks)
        for block, cache in zip(self.blocks, of_blocks, strict=True):
            x, attended = block(x, padding, generator=generator, return_edges=return_edges, cache=cache)
            attention.append(attended)
        return ModelOutput(self.norm(x), tuple(attention))

    def _convolve(self, x: Vectors, cache: Cache | None) -> Vectors:
        """Convolves embeddings, which follow those in the cache if there is one."""
        assert self.convolution is not None
        n_before = self.convolution.kernel_size[0] - 1
        before = cache.embedded if cache is not None else None
        x = nn.functional.pad(x, (0, 0, n_before, 0)) if before is None else torch.cat([before, x], 1)
        if cache is not None:
            cache.embedded = x[:, x.shape[1] - n_before :]
        return self.convolution(x.mT).mT

    def _check(self, tokens: Tensor, first: int) -> None:
        """Raises SbmtError unless the tokens are valid inputs at positions from ``first`` on."""
        check_no_proxies(tokens=tokens)
        is_vector, kind = self.vocab_size is None, "an int64" if self.vocab_size else "a floating-point"
        is_right = isinstance(tokens, Tensor) and tokens.dim() > 1 and tokens.shape[2:] == self.token_shape
        if is_right:
            is_right = tokens.is_floating_point() if is_vector else tokens.dtype in (torch.int32, torch.int64)
        if not is_right or 0 in tokens.shape[1:]:
            sizes = ", ".join(["batch", "n ≥ 1", *map(str, self.token_shape)])
            raise SbmtError(f"tokens must be {kind} tensor ({sizes}), got {describe(tokens)}")
        if tokens.device != (device := self.norm.weight.device):
            raise SbmtError(f"tokens must be on {device}, like the model, got {tokens.device}")
        if self.vocab_size is not None and len(tokens) and not is_fake(tokens):
            low, high = map(int, torch.aminmax(tokens))
            if low < 0 or high >= self.vocab_size:
                raise SbmtError(f"token ids must be in [0, {self.vocab_size}), got ids from {low} to {high}")
        n = first + tokens.shape[1]
        if self.max_length is not None and n > self.max_length:
            raise SbmtError(f"at most {self.max_length} tokens", n, "truncate sequences, or increase max_length")
