"""Kernels over tiles, called with torch tensors."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.gpu import accumulator
from sbmt.kernels.gpu.tiles import forward as tiles
from sbmt.kernels.gpu.tiles import gradients as tile_gradients
from sbmt.kernels.gpu.tiles import scales as tile_scales

ROW_SCALE = 5  # its place among the kernels' arguments
MEASURED = 16  # tokens that a program splits or measures

Shapes = dict[str, tuple[int, int, int, int]]
"""Of each kernel: queries and keys of a tile, warps, and tiles under way at a time."""
# By the instructions of a pair, spilled registers and shared memory in the assembler's output. Not timed.
BY_GROUPS: dict[str, Shapes] = {  # where four warps together feed a matrix unit with 64 rows at a time
    "narrow": {"attend": (128, 64, 8, 2), "by query": (64, 32, 4, 2), "by key": (32, 64, 4, 2)},
    "wide": {"attend": (64, 32, 4, 1), "by query": (64, 32, 4, 1), "by key": (32, 64, 4, 1)},
    "huge": {"attend": (64, 32, 4, 1), "by query": (32, 32, 4, 1), "by key": (32, 32, 4, 1)},
}
BY_WARPS: dict[str, Shapes] = {  # where each warp feeds its own
    "narrow": {"attend": (64, 32, 4, 2), "by query": (32, 32, 4, 2), "by key": (32, 32, 4, 2)},
    "wide": {"attend": (32, 32, 4, 1), "by query": (32, 32, 4, 1), "by key": (32, 32, 4, 1)},
    "huge": {"attend": (32, 32, 4, 1), "by query": (32, 32, 4, 1), "by key": (32, 32, 4, 1)},
}

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
    query, key, *_ = inputs
    given, density = _pointers(inputs), grad_density.to(log_total.dtype).contiguous()
    measured = measure_slopes(inputs, drawing, given[ROW_SCALE], out, largest, grad_out, density)
    slope, delta, slope_scale, largest_slope = measured
    given, scalars = (*given, slope, delta, log_total), _scalars(inputs, drawing)
    to_query, to_key, to_value, to_query_rate, to_key_rate = (torch.empty_like(t) for t in inputs[:5])
    about = _constants(inputs, drawing, "by query") | {"IS_SCORE_RULE": drawing.is_score_rule}
    program = tile_gradients.differentiate_queries[_grid(query, about["ROWS"])]
    program(*given, slope_scale, density, to_query, to_query_rate, *scalars, **about)
    about = _constants(inputs, drawing, "by key") | {"IS_SCORE_RULE": drawing.is_score_rule}
    program = tile_gradients.differentiate_keys[_grid(key, about["KEYS"])]
    program(*given, largest_slope, density, to_key, to_value, to_key_rate, *scalars, **about)
    return to_query, to_key, to_value, to_query_rate, to_key_rate


def measure_slopes(
    inputs: Inputs,
    drawing: Drawing,
    row_scale: Tensor,
    out: Tensor,
    largest: Tensor,
    grad_out: Tensor,
    grad_density: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`sbmt.kernels.gpu.tiles.scales.slopes_of_queries`; ``row_scale`` is that of :func:`split`."""
    query, key, value, *_ = inputs
    query_mask, key_mask = map(_unless_empty, inputs[5:])
    heads, n_queries, n_keys = *query.shape[1:3], key.shape[2]
    about: dict[str, Any] = {"D": query.shape[3], "D_VALUE": value.shape[3], "ROWS": MEASURED}
    longest = largest.new_zeros(*largest.shape[:2], 2)
    program = tile_scales.longest_of_keys[_grid(key, MEASURED)]
    program(key, value, key_mask, longest, heads, n_keys, -(-n_keys // MEASURED), **about)
    slope, delta, slope_scale = torch.empty_like(out, dtype=value.dtype), *(torch.empty_like(largest) for _ in range(2))
    largest_slope = largest.new_zeros(largest.shape[:2])
    about |= {"DROPOUT": drawing.dropout, "IS_SCORE_RULE": drawing.is_score_rule}
    given = query, query_mask, grad_out.contiguous(), out, largest, row_scale, longest, grad_density
    program = tile_scales.slopes_of_queries[_grid(query, MEASURED)]
    found = slope, delta, slope_scale, largest_slope
    program(*given, *found, heads, n_queries, -(-n_queries // MEASURED), **about)
    return found


def split(rates: Tensor, row_scale: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """High and low halves of float32 rates, see ``split_rates``; float64 has no low ones."""
    is_split = rates.dtype == torch.float32
    high = torch.empty_like(rates, dtype=torch.float16 if is_split else None)
    low = torch.empty_like(high) if is_split else None
    n_rows, width = rates.numel() // rates.shape[3], rates.shape[3]
    program = tile_scales.split_rates[(-(-n_rows // MEASURED),)]
    program(rates, high, low, row_scale, n_rows, CLUSTERS=width, ROWS=MEASURED)
    return high, low


def has_warp_groups(device: torch.device) -> bool:
    """Whether matrix units take the rows of four warps at a time: compute capability 9 and 10."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] in (9, 10)


def tile_shape(inputs: Inputs, kernel: str) -> tuple[int, int, int, int]:
    """Queries and keys of a tile of one of the kernels, its warps, and how many tiles are under way."""
    query, _, value, query_rate, *_ = inputs
    is_narrow = max(query.shape[3], value.shape[3]) <= 64 and query_rate.shape[3] <= 128
    is_short = value.dtype.itemsize == 2
    size = "narrow" if is_narrow and is_short else "wide" if is_narrow or is_short else "huge"
    return (BY_GROUPS if has_warp_groups(query.device) else BY_WARPS)[size][kernel]


def _pointers(inputs: Inputs) -> tuple[Any, ...]:
    query, key, value, query_rate, key_rate, *masks = inputs
    row_scale = query_rate.new_empty(query_rate.shape[:3])
    of_queries = (*split(query_rate, row_scale), row_scale)
    return query, key, value, *of_queries, *split(key_rate, None), *map(_unless_empty, masks)


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
