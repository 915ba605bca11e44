"""What baselines share: the checks of their inputs, zeros at padding, and the output."""

from inspect import signature
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sbmt.attention.dispatch import check_attention_inputs, check_dropout
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.masks import check_mask, count_pairs, zero_padding
from sbmt.graph.patterns import all_pairs
from sbmt.types import AttentionOutput


class Inputs(NamedTuple):
    """Arguments of a forward pass after the checks: padded tokens are zeros, masks have the shape ``(batch, n)``."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor | None
    key_mask: Tensor | None
    dropout: float  # 0 in eval mode
    generator: Generator | None
    return_edges: bool


class Baseline(nn.Module):
    """An attention with the interface of :class:`~sbmt.layers.SBMAttention`; a subclass implements :meth:`attend`.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: While training, in [0, 1): on the attention weights, unless a subclass says otherwise.
    """

    def __init__(self, d_head: int, n_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.dropout = d_head, n_heads, dropout

    def attend(self, inputs: Inputs) -> Tensor | AttentionOutput:
        """The values if every real query reads every real key, or else the whole output.

        The values of padded queries, and of examples without keys, are ignored, but must be finite.
        """
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Attends; see :class:`~sbmt.layers.SBMAttention` for arguments.

        Raises:
            SbmtError: If tensors or masks do not fit together, or do not fit the layer.
        """
        check_attention_inputs(query, key, value)
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        query, key = zero_padding(query, query_mask), zero_padding(key, key_mask)
        tokens, dropout = (query, key, zero_padding(value, key_mask)), self.dropout if self.training else 0.0
        out = self.attend(Inputs(*tokens, query_mask, key_mask, dropout, generator, return_edges))
        if isinstance(out, Tensor):
            shape = batch, heads, _, _ = (*query.shape[:3], key.shape[2])
            has_pairs = count_pairs(shape, query_mask, key_mask, False, out.device) > 0
            density = has_pairs[:, None].expand(batch, heads).to(value.dtype)
            edges = all_pairs(shape, query_mask, key_mask, device=out.device) if return_edges else None
            out = AttentionOutput(out, density, density, edges)
        values = zero_padding(out.values.to(value.dtype), query_mask)
        return AttentionOutput(values, out.density, out.expected_density, out.edges, out.auxiliary_loss)

    def extra_repr(self) -> str:
        """The arguments of the constructor that are numbers, or True."""
        values = {name: getattr(self, name, None) for name in signature(type(self)).parameters}
        return ", ".join(f"{name}={x}" for name, x in values.items() if isinstance(x, int | float) and x is not False)


def keys_to_read(key_mask: Bool[Tensor, "batch n_keys"]) -> Bool[Tensor, "batch n_keys"]:
    """The real keys, or all keys of an example that has none: its softmax stays finite, and is then ignored."""
    return key_mask | ~key_mask.any(-1, keepdim=True)


def real_tokens(inputs: Inputs) -> Bool[Tensor, "batch n"]:
    """Which tokens are real, if each is query and key at once; SbmtError if queries and keys differ in this."""
    query, key, do = inputs.query, inputs.key, "this is self-attention, where a token is query and key at once"
    if query.shape[2] != key.shape[2]:
        raise SbmtError("as many keys as queries", f"{query.shape[2]} queries and {key.shape[2]} keys", do)
    all_real = torch.ones(query.shape[::2], dtype=torch.bool, device=query.device)
    query_mask, key_mask = (all_real if mask is None else mask for mask in (inputs.query_mask, inputs.key_mask))
    if not torch.equal(query_mask, key_mask):
        raise SbmtError("query_mask and key_mask alike", "two that differ (None means all real)", do)
    return query_mask


def directions(x: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
    """Vectors brought to length 1; zeros stay zeros."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0, 1.0)
