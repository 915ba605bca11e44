"""Kernels over tiles, called with torch tensors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sbmt.gpu import accumulator, tile_gradients, tiles
from sbmt.gpu.tile_scales import KEY_SCALE, largest_slopes, power_below_most, split

# Queries and keys of a tile, warps, and tiles under way at a time: what keeps the working set in registers and shared
# memory, by the assembler's account. Not timed.
NARROW = {"attend": (64, 32, 4, 2), "by query": (64, 32, 8, 2), "by key": (32, 32, 4, 2)}  # 16 bits, ≤ 64 wide, k ≤ 128
MEDIUM = dict.fromkeys(NARROW, (32, 32, 8, 1))
WIDE = dict.fromkeys(NARROW, (16, 32, 4, 1))

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
"""query, key, value, query_rate, key_rate ``(batch, heads, n, width)``, and the masks ``(batch, n)`` or empty."""


@dataclass(frozen=True)
class Drawing:
    """What decides the edges of a call, besides the rates.

    Attributes:
        seed: Of the edges.
        dropout_seed: Of attention dropout.
        first_example: Number of the batch's first example.
        exploration: δ.
        window: Reach of the pairs that are certain, |i − j| ≤ window; −1 for none.
        dropout: Probability that a weight is dropped.
        is_poisson: Whether the link is Poisson's.
        is_score_rule: Whether the gate multiplies scores.
    """

    seed: int
    dropout_seed: int
    first_example: int
    exploration: float
    window: int
    dropout: float
    is_poisson: bool
    is_score_rule: bool


def attend_tiles(inputs: Inputs, drawing: Drawing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, and of each query its degree, the logarithm of its denominator in powers of 2, and its largest weight.

    The output has the type of sums: 16 bits of it would make the gradients of the gates twice as wrong as they need be.
    """
    query, _, value, *_ = inputs
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=accumulator(value))
    degrees = query.new_empty(query.shape[:3], dtype=torch.int32)
    log_total, largest = (query.new_empty(query.shape[:3], dtype=accumulator(value)) for _ in range(2))
    about = _constants(inputs, drawing, "attend")
    arguments = (*_pointers(inputs), out, degrees, log_total, largest, *_scalars(inputs, drawing))
    tiles.attend_tiles[_grid(query, about["ROWS"])](*arguments, **about)
    return out, degrees, log_total, largest


def attend_tiles_backward(
    inputs: Inputs,
    drawing: Drawing,
    out: Tensor,
    log_total: Tensor,
    largest: Tensor,
    grad_out: Tensor,
    grad_density: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and both rate factors; ``grad_density`` is that of one more edge of a graph."""
    query, key, value, query_rate, key_rate, *masks = inputs
    pointers = _pointers(inputs)
    present = (_unless_empty(mask) for mask in masks)
    slopes = largest_slopes(query, key, value, *present, grad_out, largest / (1 - drawing.dropout), drawing.is_score_rule)
    slopes = slopes + grad_density[..., None].abs()
    query_scale = power_below_most(slopes)
    key_scale = power_below_most((slopes / power_below_most(query_rate.amax(-1))).amax(-1))
    given = (*pointers, grad_out.to(value.dtype).contiguous(), (grad_out * out).sum(-1), log_total)
    density, scalars = grad_density.to(log_total.dtype).contiguous(), _scalars(inputs, drawing)
    grads = to_query, to_key, to_value, to_query_rate, to_key_rate = [torch.empty_like(t) for t in inputs[:5]]
    rule = {"IS_SCORE_RULE": drawing.is_score_rule}
    about = _constants(inputs, drawing, "by query") | rule
    found = query_scale, density, to_query, to_query_rate
    tile_gradients.differentiate_queries[_grid(query, about["ROWS"])](*given, *found, *scalars, **about)
    about = _constants(inputs, drawing, "by key") | rule
    found = key_scale * KEY_SCALE, density, to_key, to_value, to_key_rate
    tile_gradients.differentiate_keys[_grid(key, about["KEYS"])](*given, *found, *scalars, **about)
    to_query_rate /= (query_scale * KEY_SCALE)[..., None]
    to_key_rate /= key_scale[..., None, None]
    return tuple(grads)


def tile_shape(inputs: Inputs, kernel: str) -> tuple[int, int, int, int]:
    """Queries and keys of a tile of one of the kernels, its warps, and how many tiles are under way."""
    query, _, value, query_rate, *_ = inputs
    n_bytes = value.dtype.itemsize
    is_narrow = max(query.shape[3], value.shape[3]) <= 64 and query_rate.shape[3] <= 128
    if n_bytes == 2:
        return (NARROW if is_narrow else MEDIUM)[kernel]
    return (MEDIUM if n_bytes == 4 and is_narrow else WIDE)[kernel]


def _pointers(inputs: Inputs) -> tuple[Tensor | None, ...]:
    query, key, value, query_rate, key_rate, *masks = inputs
    scale = power_below_most(query_rate.amax(-1))
    of_queries = (*split(query_rate, scale[..., None]), 1 / (scale * KEY_SCALE))
    return query, key, value, *of_queries, *split(key_rate, KEY_SCALE), *map(_unless_empty, masks)


def _unless_empty(mask: Tensor) -> Tensor | None:
    return mask if mask.numel() else None


def _scalars(inputs: Inputs, drawing: Drawing) -> tuple[int | float, ...]:
    query, key, *_ = inputs
    seeds = drawing.seed, drawing.dropout_seed, drawing.first_example
    return *seeds, query.shape[1], query.shape[2], key.shape[2], drawing.exploration


def _constants(inputs: Inputs, drawing: Drawing, kernel: str) -> dict[str, Any]:
    query, _, value, query_rate, *_ = inputs
    rows, keys, warps, stages = tile_shape(inputs, kernel)
    widths = {"D": query.shape[3], "D_VALUE": value.shape[3], "CLUSTERS": query_rate.shape[3]}
    law = {"WINDOW": drawing.window, "DROPOUT": drawing.dropout, "IS_POISSON": drawing.is_poisson}
    return widths | law | {"ROWS": rows, "KEYS": keys, "num_warps": warps, "num_stages": stages}


def _grid(tokens: Tensor, block: int) -> tuple[int]:
    batch, heads, n, _ = tokens.shape
    return (-(-n // block) * batch * heads,)
