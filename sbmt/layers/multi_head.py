"""Drop-in for ``nn.MultiheadAttention`` around any attention of the library."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.layers.registry import build_attention
from sbmt.types import AttentionOutput


class MultiHeadAttention(nn.Module):
    """Projects to heads, attends, projects back.

    Parameter names, their layout and the argument order are those of
    ``torch.nn.MultiheadAttention(batch_first=True)``: with ``attention="full"`` its state dict loads as it is and gives
    the same outputs. Two things differ: the second result is an :class:`~sbmt.types.AttentionOutput` instead of a dense
    weight matrix, and in self-attention the padded queries are left out too. It can take the place of ``self_attn`` in
    ``torch.nn.TransformerEncoderLayer``, in eval mode as well.

    Args:
        embed_dim: Width of the model, a multiple of ``num_heads``.
        num_heads: Number of heads.
        dropout: On the attention weights while training, in [0, 1).
        bias: Whether the projections have one.
        attention: Name for :func:`~sbmt.layers.build_attention`.
        has_tied_start: Whether the key projection starts as a copy of the query projection, so that a token's query and
            key begin in the same clusters. They part in training.
        **arguments: Further arguments of that attention, such as ``n_clusters`` or ``preset``.

    Shapes:
        query ``(batch, n_queries, embed_dim)``, key and value ``(batch, n_keys, embed_dim)`` → output
        ``(batch, n_queries, embed_dim)``.

    Example:
        >>> layer = MultiHeadAttention(16, 2, n_clusters=4)
        >>> x = torch.randn(3, 5, 16)
        >>> output, attended = layer(x, x, x)
        >>> output.shape, attended.density.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 2]))
    """

    # PyTorch's encoder layers look for both. The second sends them through forward(): their fused path would take the
    # projections and attend all pairs, without asking the module that holds them.
    batch_first = True
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        attention: str = "sbm",
        has_tied_start: bool = False,
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise SbmtError(f"embed_dim as a multiple of {num_heads} heads", embed_dim, "change one of the two")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        nn.init.xavier_uniform_(self.in_proj_weight)
        if has_tied_start:
            with torch.no_grad():
                self.in_proj_weight[embed_dim : 2 * embed_dim] = self.in_proj_weight[:embed_dim]
        if bias:
            nn.init.zeros_(self.out_proj.bias)
        d_head = embed_dim // num_heads
        self.attention = build_attention(attention, d_head=d_head, n_heads=num_heads, dropout=dropout, **arguments)

    def forward(
        self,
        query: Float[Tensor, "batch n_queries d_model"],
        key: Float[Tensor, "batch n_keys d_model"],
        value: Float[Tensor, "batch n_keys d_model"],
        key_padding_mask: Bool[Tensor, "batch n_keys"] | Float[Tensor, "batch n_keys"] | None = None,
        need_weights: bool = True,
        attn_mask: None = None,
        *,
        is_causal: bool = False,
        query_padding_mask: Bool[Tensor, "batch n_queries"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> tuple[Float[Tensor, "batch n_queries d_model"], AttentionOutput | None]:
        """Attends from ``query`` to ``key``.

        Args:
            query: ``(batch, n_queries, embed_dim)``.
            key: ``(batch, n_keys, embed_dim)``.
            value: ``(batch, n_keys, embed_dim)``.
            key_padding_mask: bool ``(batch, n_keys)``, **True = ignore**, as in PyTorch; or, as PyTorch's own layers
                pass it on, 0 and -inf for that.
            need_weights: Whether the second result is wanted.
            attn_mask: Not supported: the mask is what this layer infers.
            is_causal: Not supported: the mask knows no order.
            query_padding_mask: bool ``(batch, n_queries)``, True = ignore. In self-attention (``query is key``) it
                defaults to ``key_padding_mask``. A padded query's output is the output projection's bias.
            generator: Source of the mask's and dropout's seeds.
            return_edges: Whether the second result carries the edges.

        Raises:
            SbmtError: On shapes or masks that do not fit, or if ``attn_mask`` or ``is_causal`` is given.
        """
        if attn_mask is not None:
            do = "use window=, self_loops= or key_padding_mask="
            raise SbmtError("no attn_mask, since the mask is inferred", "one", do)
        if is_causal:
            raise SbmtError("is_causal=False, since the mask knows no order", is_causal, "use another attention")
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != self.embed_dim:
                got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
                raise SbmtError(f"{name} of shape (batch, n, {self.embed_dim})", got, "batch comes first")
            if not x.is_floating_point():
                raise SbmtError(f"{name} as a floating-point tensor", x.dtype, "embed integer features first")
            mine = self.in_proj_weight
            if x.device != mine.device or (x.dtype != mine.dtype and not torch.is_autocast_enabled(x.device.type)):
                expected = f"{name} of {mine.dtype} on {mine.device}, as the layer"
                raise SbmtError(expected, f"{x.dtype} on {x.device}", "convert one of them with .to(…)")
        key_mask = _is_real("key_padding_mask", key_padding_mask)
        query_mask = _is_real("query_padding_mask", query_padding_mask)
        if query_padding_mask is None and query is key:
            query_mask = key_mask
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        heads = [  # batch heads n d_head
            nn.functional.linear(x, weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
        ]
        attended = self.attention(
            *heads,
            query_mask=query_mask,
            key_mask=key_mask,
            generator=generator,
            return_edges=return_edges,
        )
        output = self.out_proj(attended.values.transpose(1, 2).flatten(2).to(self.out_proj.weight.dtype))
        return output, attended if need_weights else None


def _is_real(name: str, padding: Tensor | None) -> Tensor | None:
    if padding is None:
        return None
    if isinstance(padding, Tensor) and padding.is_floating_point():  # added to the scores
        if bool(((padding == 0) | (padding == -torch.inf)).all()):
            return padding == 0
        raise SbmtError(f"{name} of 0 and -inf", "other numbers", "pass a bool tensor, True = ignore")
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        got = padding.dtype if isinstance(padding, Tensor) else type(padding).__name__
        raise SbmtError(f"{name} as a bool tensor, True = ignore", got, "compare the ids with the padding id")
    return ~padding
