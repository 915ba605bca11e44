"""Code shared by the baselines: input checks, padding, dtypes and the output."""

from contextlib import nullcontext
from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sbmt.attention.cache import Cache, check_decoding
from sbmt.attention.dispatch import check_attention_inputs, check_dropout
from sbmt.errors import check_sizes
from sbmt.graph.masks import check_causal, check_mask, count_pairs, zero_padding
from sbmt.graph.patterns import all_pairs
from sbmt.types import AttentionOutput, full_precision, shapes_alone


class Inputs(NamedTuple):
    """The checked arguments of a forward pass; tensors have the same dtype and are zero at padding."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Tensor | None
    key_mask: Tensor | None
    dropout: float  # 0 in eval mode
    generator: Generator | None
    return_edges: bool


class Baseline(nn.Module):
    """The base class of layers with the interface of :class:`~sbmt.SBMAttention`; subclasses implement :meth:`attend`.

    There are ``n_heads`` heads of width ``d_head``. During training, ``dropout`` in [0, 1) applies to the attention
    weights, unless a subclass documents otherwise.
    """

    is_drawn = False  # whether values depend on random draws
    is_precise = True  # whether it computes in float32 or float64, regardless of autocast and the inputs

    def __init__(self, d_head: int, n_heads: int, *, dropout: float = 0.0, causal: bool = False) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_dropout(dropout)
        check_causal((1, 1, 1, 1), causal)
        self.d_head, self.n_heads, self.dropout, self.causal = d_head, n_heads, dropout, causal

    def attend(self, inputs: Inputs) -> Tensor | AttentionOutput:
        """Returns only values if queries attend to all real keys, otherwise the whole output, arbitrary at padding."""
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
        cache: Cache | None = None,
    ) -> AttentionOutput:
        """Computes attention; the arguments are those of :class:`~sbmt.layers.SBMAttention`."""
        check_attention_inputs(query, key, value)
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        if (self.is_drawn or not len(query)) and (shapes := shapes_alone(self, query, key, value)) is not None:
            return shapes
        if cache is not None:
            check_decoding(self, query_mask, key_mask)
            key, value = (buffer[:, :, : cache.length] for buffer in cache.append(key, value))
        shape, dtypes = (*query.shape[:3], key.shape[2]), [query.dtype, key.dtype, value.dtype]
        check_causal(shape, self.causal)
        dtype = reduce(torch.promote_types, [*dtypes, torch.float32] if self.is_precise else dtypes)
        query = zero_padding(query, query_mask).to(dtype)
        key, value = (zero_padding(x, key_mask).to(dtype) for x in (key, value))
        dropout = self.dropout if self.training else 0.0
        inputs = Inputs(query, key, value, query_mask, key_mask, dropout, generator, return_edges)
        with full_precision(query) if self.is_precise else nullcontext():
            out = self.attend(inputs)
        if isinstance(out, Tensor):
            has_pairs = count_pairs(shape, query_mask, key_mask, self.causal, out.device) > 0
            density = has_pairs[:, None].expand(shape[:2]).to(dtypes[2])
            edges = all_pairs(shape, query_mask, key_mask, self.causal, device=out.device) if return_edges else None
            out = AttentionOutput(out, density, density, edges)
        values = zero_padding(out.values.to(dtypes[2]), query_mask)
        return AttentionOutput(values, out.density, out.expected_density, out.edges)

    def extra_repr(self) -> str:
        """Returns the settings that all baselines share."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, dropout={self.dropout}"


def all_real(x: Float[Tensor, "batch heads n d"], mask: Bool[Tensor, "batch n"] | None) -> Bool[Tensor, "batch n"]:
    """Returns the mask of real tokens, or True everywhere if ``mask`` is None."""
    return torch.ones(x.shape[::2], dtype=torch.bool, device=x.device) if mask is None else mask


def keys_to_read(key_mask: Bool[Tensor, "batch n_keys"]) -> Bool[Tensor, "batch n_keys"]:
    """Returns the mask of real keys, but True everywhere in examples without one, so that their softmax is finite."""
    return key_mask | ~key_mask.any(-1, keepdim=True)
