"""A drop-in replacement for ``nn.MultiheadAttention`` that wraps any attention layer of the library."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.cache import Cache, check_decoding
from sbmt.errors import SbmtError, check_sizes, describe
from sbmt.graph.masks import check_mask, zero_padding
from sbmt.layers.registry import build_attention
from sbmt.types import AttentionOutput, check_floating, check_untransformed


class MultiHeadAttention(nn.Module):
    """Multi-head attention, which projects tokens to heads, attends, and projects the result back.

    The names and layout of the parameters and the order of the first arguments are those of
    ``torch.nn.MultiheadAttention(batch_first=True)``: with ``attention="full"`` its state dict loads unchanged and
    gives the same outputs. There are two differences: the second result is an :class:`~sbmt.types.AttentionOutput`
    instead of a dense weight matrix, and a ``key_padding_mask`` also masks the queries if there are as many queries as
    keys. The layer can replace ``self_attn`` in ``torch.nn.TransformerEncoderLayer``, even in eval mode.

    Args:
        embed_dim: Width of the model, a multiple of ``num_heads``.
        num_heads: Number of heads.
        dropout: Dropout of the attention weights in training, in [0, 1).
        bias: Whether the projections have a bias.
        batch_first: Must be True.
        device: Device of the parameters, whose type is ``dtype``.
        attention: Name of the attention layer, for :func:`~sbmt.layers.build_attention`.
        has_tied_start: Whether the key projection starts as a copy of the query projection, so that a token's query and
            key start in the same clusters.
        transform_heads: A function or module that maps query and key heads to heads of the same shapes, such as
            :class:`~sbmt.layers.rotary.RotaryPositions`. With a cache, ``first=`` passes the first token's position.
        **arguments: Further arguments of the attention layer, such as ``n_clusters`` or ``preset``.

    Raises SbmtError if an argument is out of range or not supported by the attention layer.

    Example:
        >>> layer = MultiHeadAttention(16, 2, n_clusters=4)
        >>> x = torch.randn(3, 5, 16)
        >>> output, attended = layer(x, x, x)
        >>> output.shape, attended.density.shape
        (torch.Size([3, 5, 16]), torch.Size([3, 2]))
    """

    # PyTorch's encoder layers read both; the second keeps them off their fused path, which attends to all pairs.
    batch_first = True
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        attention: str = "sbm",
        has_tied_start: bool = False,
        transform_heads: Callable[..., tuple[Tensor, Tensor]] | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_sizes(embed_dim=embed_dim, num_heads=num_heads)
        if not batch_first:
            raise SbmtError("batch_first=True", batch_first, "transpose the inputs so that the batch comes first")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise SbmtError("dtype to be a floating-point type", dtype, "use torch.float32, for example")
        if transform_heads is not None and not callable(transform_heads):
            do = "pass a function or a module that takes query and key heads"
            raise SbmtError("a callable transform_heads", describe(transform_heads), do)
        if embed_dim % num_heads:
            raise SbmtError(f"embed_dim to be a multiple of num_heads = {num_heads}", embed_dim, "change one of them")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.has_tied_start = has_tied_start
        self._reset_projections()
        d_head = embed_dim // num_heads
        self.attention = build_attention(attention, d_head=d_head, n_heads=num_heads, dropout=dropout, **arguments)
        self.transform_heads = transform_heads
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Reinitialises all parameters, including those of the attention layer where its modules have this method."""
        self.out_proj.reset_parameters()
        self._reset_projections()
        for module in reversed(list(self.attention.modules())):  # children first, since parents may scale them
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()

    def _reset_projections(self) -> None:
        """Initialises the parameters whose initial values differ from those of ``nn.Linear``."""
        nn.init.xavier_uniform_(self.in_proj_weight)
        if self.has_tied_start:
            with torch.no_grad():
                self.in_proj_weight[self.embed_dim : 2 * self.embed_dim] = self.in_proj_weight[: self.embed_dim]
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query: Float[Tensor, "batch n_queries d_model"],
        key: Float[Tensor, "batch n_keys d_model"],
        value: Float[Tensor, "batch n_keys d_model"],
        key_padding_mask: Bool[Tensor, "batch n_keys"] | Float[Tensor, "batch n_keys"] | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        query_padding_mask: Bool[Tensor, "batch n_queries"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
        cache: Cache | None = None,
    ) -> tuple[Float[Tensor, "batch n_queries d_model"], AttentionOutput | None]:
        """Returns the output ``(batch, n_queries, embed_dim)``, and the attention layer's output or None.

        Args:
            query: ``(batch, n_queries, embed_dim)``.
            key: ``(batch, n_keys, embed_dim)``.
            value: ``(batch, n_keys, embed_dim)``.
            key_padding_mask: bool ``(batch, n_keys)``, **True = ignore**, as in PyTorch; or floating-point with -inf
                for True and 0 for False, as PyTorch's own layers pass it.
            need_weights: Whether to return the attention layer's output; if not, None takes its place.
            attn_mask: None, since the layer infers its mask, or a causal mask if the layer is causal.
            is_causal: Must be False unless the layer was built with ``causal=True``.
            query_padding_mask: bool ``(batch, n_queries)``, True = ignore. The output for a padded query is the bias of
                the output projection. The default is ``key_padding_mask`` if there are as many queries as keys, as in
                self-attention. Pass zeros (False) if the queries are a different sequence of the same length.
            generator: Source of the seeds for the mask and dropout.
            return_edges: Whether the second result includes the edges.
            cache: The layer's cache of earlier tokens (:class:`~sbmt.attention.cache.Cache`).
        """
        check_floating(query=query, key=key, value=value)
        check_untransformed(query, key, value)
        causal = getattr(self.attention, "causal", False)
        if attn_mask is not None and not (causal and _is_causal_mask(attn_mask, query.shape[1], key.shape[1])):
            do = "use causal=, window=, self_loops= or key_padding_mask= instead"
            raise SbmtError("no attn_mask, because the mask is inferred", describe(attn_mask), do)
        if is_causal and not causal:
            raise SbmtError("is_causal=True requires a causal layer: build the layer with causal=True")
        mine = self.in_proj_weight
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.dim() != 3 or x.shape[-1] != self.embed_dim:
                expected = f"{name} of shape (batch, n, {self.embed_dim})"
                raise SbmtError(expected, tuple(x.shape), "reshape it so that the batch comes first")
            if x.device != mine.device or (x.dtype != mine.dtype and not torch.is_autocast_enabled(x.device.type)):
                expected = f"{name} to be {mine.dtype} on {mine.device}, like the layer"
                raise SbmtError(expected, f"{x.dtype} on {x.device}", "convert one of them with .to(…)")
        key_mask = _is_real("key_padding_mask", key_padding_mask, key)
        query_mask = _is_real("query_padding_mask", query_padding_mask, query)
        if query_padding_mask is None and query.shape == key.shape:
            query_mask = key_mask
        weights = self.in_proj_weight.chunk(3)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        value_mask = key_mask if value.shape == key.shape else None  # other shapes are rejected below
        masked = (query, query_mask), (key, key_mask), (value, value_mask)  # padding may contain NaN
        heads = [  # batch heads n d_head
            nn.functional.linear(zero_padding(*x), weight, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip(masked, weights, biases, strict=True)
        ]
        options: dict[str, Any] = {"query_mask": query_mask, "key_mask": key_mask, "generator": generator}
        if cache is not None:
            check_decoding(self.attention, query_mask, key_mask)
            options["cache"] = cache
        if self.transform_heads is not None:
            heads[:2] = self._transform(heads[0], heads[1], cache)
        attended = self.attention(*heads, return_edges=return_edges, **options)
        together = attended.values.transpose(1, 2).flatten(2).to(mine.dtype)  # out_proj may have no weight attribute
        return self.out_proj(together), attended if need_weights else None

    def _transform(self, query: Tensor, key: Tensor, cache: Cache | None) -> tuple[Tensor, Tensor]:
        assert self.transform_heads is not None
        options = {}
        if cache is not None:
            function = getattr(self.transform_heads, "forward", self.transform_heads)
            taken = inspect.signature(function).parameters.values()
            if not any(p.name == "first" or p.kind is p.VAR_KEYWORD for p in taken):
                raise SbmtError("decoding requires a transform_heads that takes first=, the first token's position")
            options["first"] = cache.length
        found = self.transform_heads(query, key, **options)
        shapes = [tuple(x.shape) if isinstance(x, Tensor) else x for x in found] if isinstance(found, tuple) else found
        if shapes != [tuple(query.shape), tuple(key.shape)]:
            expected = f"transform_heads to return heads of shapes {tuple(query.shape)} and {tuple(key.shape)}"
            raise SbmtError(expected, shapes, "return queries and keys with unchanged shapes")
        return found


def _is_causal_mask(mask: Any, n_queries: int, n_keys: int) -> bool:
    """Returns whether a PyTorch mask, which is True or -inf at excluded pairs, excludes exactly the later keys."""
    if not isinstance(mask, Tensor) or mask.shape != (n_queries, n_keys):
        return False
    is_later = torch.ones_like(mask, dtype=torch.bool).triu(n_keys - n_queries + 1)
    added = is_later if mask.dtype == torch.bool else mask.new_zeros(()).masked_fill(is_later, -torch.inf)
    return torch.equal(mask, added)


def _is_real(name: str, padding: Tensor | None, x: Tensor) -> Tensor | None:
    if padding is None:
        return None
    if isinstance(padding, Tensor) and padding.is_floating_point():  # added to the scores
        if not bool(((padding == 0) | (padding == -torch.inf)).all()):
            raise SbmtError(f"{name} to contain only 0 and -inf", "other numbers", "pass a bool tensor (True = ignore)")
        padding = padding != 0
    if not isinstance(padding, Tensor) or padding.dtype != torch.bool:
        raise SbmtError(f"{name} to be a bool tensor (True = ignore)", describe(padding), "use ids == padding_id")
    return check_mask(name, ~padding, x.shape[0], x.shape[1], x.device)
