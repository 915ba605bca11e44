"""The pre-LN encoder: embedding, blocks, final norm. Read from top to bottom."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.attention.inputs import check_dropout
from sbmt.errors import SbmtError, check_choice, check_sizes
from sbmt.graph.padding import check_mask
from sbmt.layers import MultiHeadAttention
from sbmt.layers.rotary import RotaryPositions
from sbmt.types import AttentionOutput

Positions = Literal["learned", "rotary", "none"]


@dataclass(frozen=True, eq=False)
class ModelOutput:
    """What a model returns.

    Attributes:
        values: The encoder's token vectors ``(batch, n, d_model)``, or a head's logits.
        attention: One :class:`~sbmt.types.AttentionOutput` per layer.
    """

    values: Tensor
    attention: tuple[AttentionOutput, ...]


class EncoderBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)), with GELU.

    Args:
        d_model: Width.
        d_hidden: Width inside the MLP.
        n_heads: Number of heads.
        dropout: After attention and after the MLP.
        attention_dropout: On the attention weights.
        attention: Name for :func:`~sbmt.layers.build_attention`.
        **arguments: Further arguments of that attention.
    """

    def __init__(
        self,
        d_model: int,
        d_hidden: int,
        n_heads: int,
        *,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        attention: str = "sbm",
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(d_hidden=d_hidden)
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads, attention_dropout, attention=attention, **arguments)
        self.mlp_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_hidden, d_model)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        key_padding_mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> tuple[Float[Tensor, "batch n d_model"], AttentionOutput]:
        """Returns the new token vectors and what was attended."""
        y = self.attention_norm(x)
        y, attended = self.attention(y, y, y, key_padding_mask, generator=generator, return_edges=return_edges)
        x = x + self.dropout(y)
        return x + self.dropout(self.mlp(self.mlp_norm(x))), attended


class Encoder(nn.Module):
    """Token embeddings, positions, blocks, a final norm.

    Args:
        vocab_size: Number of token ids.
        max_length: Longest sequence; None sets no limit.
        d_model: Width.
        d_hidden: Width inside each block's MLP.
        n_heads: Heads per layer.
        n_layers: Number of blocks.
        dropout: After the embedding, attention and MLPs, in [0, 1).
        attention_dropout: On the attention weights, in [0, 1).
        embedding_std: Standard deviation of the embeddings at the start.
        positions: ``"learned"`` adds a table of ``max_length`` vectors to the embeddings; ``"rotary"`` turns queries
            and keys (:class:`~sbmt.layers.rotary.RotaryPositions`) and needs heads of even width; ``"none"`` leaves
            positions out. None means learned positions where ``max_length`` is given, and no positions otherwise.
        attention: Name for :func:`~sbmt.layers.build_attention`.
        **arguments: Further arguments of :class:`~sbmt.layers.MultiHeadAttention` and of that attention, such as
            ``n_clusters``, ``window`` or ``preset``.

    Raises:
        SbmtError: If a value is out of range, or learned positions have no ``max_length``.

    Paper: section 5; pre-LN and GELU as in the pipeline it uses.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int | None,
        *,
        d_model: int,
        d_hidden: int,
        n_heads: int,
        n_layers: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        embedding_std: float = 0.02,
        positions: Positions | None = None,
        attention: str = "sbm",
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(vocab_size=vocab_size, d_model=d_model, n_heads=n_heads, n_layers=n_layers)
        check_dropout(dropout)
        if not isinstance(embedding_std, (int, float)) or not 0 <= embedding_std < 1e30:
            raise SbmtError("embedding_std in [0, 1e30)", embedding_std, "0.02 is usual")
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        nn.init.normal_(self.token_embedding.weight, std=embedding_std)
        if max_length is not None:
            check_sizes(max_length=max_length)
        if positions is None:
            positions = "none" if max_length is None else "learned"
        check_choice("positions", positions, Positions)
        self.max_length, self.positions = max_length, positions
        self.position_embedding = None
        if positions == "learned":
            if max_length is None:
                raise SbmtError("max_length with learned positions", None, "give it, or take rotary positions")
            self.position_embedding = nn.Embedding(max_length, d_model)
            nn.init.normal_(self.position_embedding.weight, std=embedding_std)
        if positions == "rotary":
            if "transform_heads" in arguments:
                raise SbmtError("rotary positions or transform_heads", "both", "leave one out")
            arguments["transform_heads"] = RotaryPositions(d_model // n_heads)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                d_model,
                d_hidden,
                n_heads,
                dropout=dropout,
                attention_dropout=attention_dropout,
                attention=attention,
                **arguments,
            )
            for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Encodes token ids.

        Args:
            tokens: int64 ``(batch, n)``, in [0, vocab_size).
            mask: bool ``(batch, n)``, True = real token.
            generator: Source of the masks' seeds.
            return_edges: Whether each layer's output carries its edges.

        Raises:
            SbmtError: On tokens of another type, shape or range, more of them than ``max_length``, or a mask that does
                not fit them.
        """
        self._check(tokens)
        mask = check_mask("mask", mask, tokens.shape[0], tokens.shape[1], tokens.device)
        x = self.token_embedding(tokens)  # batch n d_model
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[: tokens.shape[1]]
        x = self.dropout(x)
        padding = None if mask is None else ~mask
        attention = []
        for block in self.blocks:
            x, attended = block(x, padding, generator=generator, return_edges=return_edges)
            attention.append(attended)
        return ModelOutput(self.norm(x), tuple(attention))

    def _check(self, tokens: Tensor) -> None:
        is_integer = isinstance(tokens, Tensor) and tokens.dtype in (torch.int32, torch.int64)
        if not is_integer or tokens.dim() != 2 or 0 in tokens.shape:
            got = f"{tokens.dtype} {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
            raise SbmtError("token ids as an int64 tensor (batch, n ≥ 1)", got, "encode the text first")
        if tokens.device != (device := self.token_embedding.weight.device):
            raise SbmtError(f"token ids on {device}, where the model is", tokens.device, "move one of them with .to(…)")
        low, high = (int(x) for x in torch.aminmax(tokens))
        size = self.token_embedding.num_embeddings
        if low < 0 or high >= size:
            raise SbmtError(f"token ids in [0, {size})", f"ids from {low} to {high}", "check the vocabulary")
        if self.max_length is not None and tokens.shape[1] > self.max_length:
            do = "truncate, or build with a larger max_length"
            raise SbmtError(f"at most {self.max_length} tokens", tokens.shape[1], do)


def check_encoder(encoder: Encoder) -> Encoder:
    """The encoder of a model.

    Raises:
        SbmtError: If it is something else.
    """
    if not isinstance(encoder, Encoder):
        raise SbmtError("an Encoder", type(encoder).__name__, "build one, and give it to the model")
    return encoder
