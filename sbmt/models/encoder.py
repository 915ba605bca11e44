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
from sbmt.models.embedding import IdEmbedding, VectorEmbedding
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
        vocab_size: Number of token ids; None where tokens are vectors.
        max_length: Longest sequence; None sets no limit.
        d_model: Width.
        d_hidden: Width inside each block's MLP.
        n_heads: Heads per layer.
        n_layers: Number of blocks.
        dropout: After the embedding, attention and MLPs, in [0, 1).
        attention_dropout: On the attention weights, in [0, 1).
        embedding_std: Standard deviation of the embeddings at the start.
        n_ids: Ids that make up one token; their embeddings, narrower by this factor, stand side by side.
        d_input: Numbers that make up one token, where tokens are vectors: a linear layer embeds them, and
            ``embedding_std`` holds for entries of variance 1.
        positions: ``"learned"`` adds a table of ``max_length`` vectors to the embeddings; ``"rotary"`` turns queries
            and keys (:class:`~sbmt.layers.rotary.RotaryPositions`) and needs heads of even width; ``"none"`` leaves
            positions out. None means learned positions where ``max_length`` is given, and no positions otherwise.
        attention: Name for :func:`~sbmt.layers.build_attention`.
        **arguments: Further arguments of :class:`~sbmt.layers.MultiHeadAttention` and of that attention, such as
            ``n_clusters``, ``window`` or ``preset``.

    Raises:
        SbmtError: If a value is out of range, both or neither of ``vocab_size`` and ``d_input`` are given, or learned
            positions have no ``max_length``.

    Paper: section 5; pre-LN and GELU as in the pipeline it uses.
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
        attention_dropout: float = 0.0,
        embedding_std: float = 0.02,
        n_ids: int = 1,
        d_input: int | None = None,
        positions: Positions | None = None,
        attention: str = "sbm",
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(n_heads=n_heads, n_layers=n_layers)
        check_dropout(dropout)
        if not isinstance(embedding_std, (int, float)) or not 0 <= embedding_std < 1e30:
            raise SbmtError("embedding_std in [0, 1e30)", embedding_std, "0.02 is usual")
        self.d_model = d_model
        self.token_embedding: IdEmbedding | VectorEmbedding
        if vocab_size is not None and d_input is None:
            self.token_embedding = IdEmbedding(vocab_size, d_model, n_ids, embedding_std)
        elif vocab_size is None and d_input is not None:
            self.token_embedding = VectorEmbedding(d_input, d_model, embedding_std)
        else:
            do = "give the number of ids, or of the entries of a vector"
            raise SbmtError("either vocab_size or d_input", "neither" if d_input is None else "both", do)
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
        tokens: Int[Tensor, "batch n *ids"] | Float[Tensor, "batch n d_input"],
        mask: Bool[Tensor, "batch n"] | None = None,
        *,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> ModelOutput:
        """Encodes tokens.

        Args:
            tokens: int64 ``(batch, n)``, in [0, vocab_size), with several ids per token ``(batch, n, ids)``; vectors
                ``(batch, n, d_input)``.
            mask: bool ``(batch, n)``, True = real token.
            generator: Source of the masks' seeds.
            return_edges: Whether each layer's output carries its edges.

        Raises:
            SbmtError: On tokens of another type, shape or range, more of them than ``max_length``, or a mask that does
                not fit them.
        """
        is_vectors = isinstance(self.token_embedding, VectorEmbedding)  # which may hold anything at padding
        x = self.token_embedding(tokens, mask) if is_vectors else self.token_embedding(tokens)  # batch n d_model
        mask = check_mask("mask", mask, x.shape[0], x.shape[1], x.device)
        if self.max_length is not None and x.shape[1] > self.max_length:
            do = "truncate, or build with a larger max_length"
            raise SbmtError(f"at most {self.max_length} tokens", x.shape[1], do)
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[: tokens.shape[1]]
        x = self.dropout(x)
        padding = None if mask is None else ~mask
        attention = []
        for block in self.blocks:
            x, attended = block(x, padding, generator=generator, return_edges=return_edges)
            attention.append(attended)
        return ModelOutput(self.norm(x), tuple(attention))


def check_encoder(encoder: Encoder) -> Encoder:
    """The encoder of a model.

    Raises:
        SbmtError: If it is something else.
    """
    if not isinstance(encoder, Encoder):
        raise SbmtError("an Encoder", type(encoder).__name__, "build one, and give it to the model")
    return encoder


def check_selected(selected: Tensor, x: Tensor, mask: Tensor | None) -> None:
    """Raises SbmtError unless ``selected`` asks about real tokens among those of ``x``, ``(batch, n, d_model)``."""
    is_bool = isinstance(selected, Tensor) and selected.dtype == torch.bool
    if not is_bool or selected.shape != x.shape[:2]:
        got = f"{selected.dtype} {tuple(selected.shape)}" if isinstance(selected, Tensor) else type(selected).__name__
        expected = f"selected as a bool tensor of shape {tuple(x.shape[:2])}"
        raise SbmtError(expected, got, "give one entry per token, True = asked about")
    if selected.device != x.device:
        raise SbmtError(f"selected on {x.device}, as the tokens", selected.device, "move it there with .to(…)")
    if mask is not None and bool((selected & ~mask).any()):
        n_padding = int((selected & ~mask).sum())
        raise SbmtError("only real tokens selected", f"{n_padding} at padding", "select where the mask is True")
