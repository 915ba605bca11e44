"""Checks of shapes and padding masks, counts of real query-key pairs, and zeroing of padded tokens."""

from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sbmt.errors import SbmtError, describe

Shape = tuple[int, int, int, int]
"""``(batch, heads, n_queries, n_keys)``."""


def check_shape(shape: object) -> None:
    """Raises SbmtError unless ``shape`` is ``(batch, heads, n_queries, n_keys)`` and all four are at least 1."""
    if not isinstance(shape, tuple) or len(shape) != 4 or not all(type(n) is int for n in shape):
        raise SbmtError("a shape (batch, heads, n_queries, n_keys)", repr(shape), "pass a tuple of four integers")
    if min(shape) < 1:
        raise SbmtError("at least one example, head, query and key", shape, "omit empty sequences")


def check_mask(name: str, mask: Tensor | None, batch: int, n: int, device: torch.device | None = None) -> Tensor | None:
    """Checks a bool mask, ``(batch, n)`` or ``(1, n)``, and expands it to ``(batch, n)``; None means all real."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise SbmtError(f"{name} to be a bool tensor (True = real token)", describe(mask), "use ids != padding_id")
    if mask.dim() != 2 or mask.shape[0] not in (1, batch) or mask.shape[1] != n:
        raise SbmtError(f"{name} of shape ({batch}, {n})", tuple(mask.shape), "use one entry per token")
    if device is not None and mask.device != device:
        raise SbmtError(f"{name} on {device}, like the tokens", mask.device, "move it with .to(…)")
    return mask.expand(batch, n)


def check_as_many_keys(shape: Shape, causal: bool = False) -> None:
    """Raises SbmtError if the numbers of queries and keys differ, unless ``causal``."""
    _, _, n_queries, n_keys = shape
    if n_queries != n_keys and not causal:
        got = f"{n_queries} queries and {n_keys} keys"
        raise SbmtError("as many queries as keys", got, "omit self-loops and windows, which require equal numbers")


def check_causal(shape: Shape, causal: bool) -> None:
    """Raises SbmtError unless ``causal`` is a bool and a causal mask has at least as many keys as queries."""
    if not isinstance(causal, bool):
        raise SbmtError("causal to be True or False", describe(causal), "pass True to mask later keys")
    if causal and shape[2] > shape[3]:
        got = f"{shape[2]} queries and {shape[3]} keys"
        raise SbmtError("at least as many keys as queries with causal=True", got, "include a key for each query")


def count_pairs(
    shape: Shape, query_mask: Tensor | None, key_mask: Tensor | None, causal: bool, device: torch.device
) -> Int[Tensor, " batch"]:
    """Counts the real query-key pairs of each example, int64, without pairs with a later key if ``causal``."""
    batch, _, n_queries, n_keys = shape
    if causal:
        keys = torch.ones(1, n_keys, dtype=torch.bool, device=device) if key_mask is None else key_mask
        visible = keys.cumsum(1)[:, n_keys - n_queries :]
        return (visible if query_mask is None else visible * query_mask).sum(1).expand(batch)
    given = (n_queries, query_mask), (n_keys, key_mask)
    queries, keys = (torch.tensor(n, device=device) if mask is None else mask.sum(1) for n, mask in given)
    return (queries * keys).expand(batch)


def share_of_pairs(
    totals: Tensor, shape: Shape, query_mask: Tensor | None, key_mask: Tensor | None, causal: bool = False
) -> Float[Tensor, "batch heads"]:
    """Divides ``totals``, ``(batch, heads)``, by the number of real pairs; returns 0 where there are none."""
    if not totals.is_floating_point():
        totals = totals.to(torch.promote_types(torch.get_default_dtype(), torch.float32))  # 16 bits do not suffice
    if query_mask is None and key_mask is None and not causal:
        return totals / max(shape[2] * shape[3], 1)
    return totals / count_pairs(shape, query_mask, key_mask, causal, totals.device).clamp(min=1)[:, None]


class TokenPairs:
    """The base class of edge lists and block models, with the padding masks and causality that both have."""

    shape: Shape
    query_mask: Tensor | None
    key_mask: Tensor | None
    causal: bool
    device: torch.device

    @property
    def masks(self) -> tuple[Tensor | None, Tensor | None, bool]:
        """``query_mask``, ``key_mask`` and ``causal``, which determine the real pairs."""
        return self.query_mask, self.key_mask, self.causal

    @property
    def offset(self) -> int:
        """The position of the first query among the keys if the mask is causal."""
        return self.shape[3] - self.shape[2]

    @cached_property
    def n_pairs(self) -> Int[Tensor, " batch"]:
        """The number of real pairs in each example, int64."""
        return count_pairs(self.shape, *self.masks, self.device)


def zero_padding(
    tokens: Float[Tensor, "batch *heads n d"], mask: Bool[Tensor, "batch n"] | None
) -> Float[Tensor, "batch *heads n d"]:
    """Sets padded tokens and their gradients to zero, even if they contain NaN or infinity."""
    if mask is None:
        return tokens
    return tokens.masked_fill(~(mask[:, None, :, None] if tokens.dim() == 4 else mask[..., None]), 0.0)
