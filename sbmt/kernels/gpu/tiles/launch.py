"""Launches the kernels over tiles."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.gpu import accumulator
from sbmt.kernels.gpu.tiles import forward as tiles
from sbmt.kernels.gpu.tiles import gradients as tile_gradients
from sbmt.kernels.gpu.tiles import scales as tile_scales
from sbmt.kernels.structures import Drawing, TileInputs

ROW_SCALE = 5  # its place among the kernels' arguments
MEASURED = 16  # tokens that one program splits or measures

Shapes = dict[str, tuple[int, int, int, int]]
"""For each kernel: queries and keys of a tile, warps, and pipeline stages."""
# Chosen by instructions per pair, spilled registers and shared memory in the assembler's output. Not timed.
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


def attend_tiles(inputs: TileInputs, drawing: Drawing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, and of each query its degree, the logarithm of its denominator to base 2, and its largest weight.

    The output has the type of sums: in 16 bits it would double the error of the gates' gradients.
    """
    query, value = inputs.query, inputs.value
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=accumulator(value))
    degrees = query.new_empty(query.shape[:3], dtype=torch.int32)
    log_total, largest = (query.new_empty(query.shape[:3], dtype=accumulator(value)) for _ in range(2))
    options = _constants(inputs, drawing, "attend")
    arguments = (*_pointers(inputs), out, degrees, log_total, largest, *_scalars(inputs, drawing))
    tiles.attend_tiles[_grid(query, options["ROWS"])](*arguments, **options)
    return out, degrees, log_total, largest


def attend_tiles_backward(
    inputs: TileInputs, drawing: Drawing, results: Sequence[Tensor], grad_out: Tensor, grad_density: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and both rate factors.

    Args:
        inputs: Those of the forward pass.
        drawing: That of the forward pass.
        results: Its output, the logarithms of its denominators, and the largest weights.
        grad_out: The output's gradient.
        grad_density: For each graph, the gradient of one more edge.
    """
    out, log_total, largest = results
    pointers, density = _pointers(inputs), grad_density.to(log_total.dtype).contiguous()
    measured = measure_slopes(inputs, drawing, pointers[ROW_SCALE], out, largest, grad_out, density)
    slope, delta, slope_scale, largest_slope = measured
    pointers, scalars = (*pointers, slope, delta, log_total), _scalars(inputs, drawing)
    grads = to_query, to_key, to_value, to_query_rate, to_key_rate = tuple(torch.empty_like(t) for t in inputs[:5])
    rule = {"IS_SCORE_RULE": drawing.is_score_rule}
    options = _constants(inputs, drawing, "by query") | rule
    program = tile_gradients.differentiate_queries[_grid(inputs.query, options["ROWS"])]
    program(*pointers, slope_scale, density, to_query, to_query_rate, *scalars, **options)
    options = _constants(inputs, drawing, "by key") | rule
    program = tile_gradients.differentiate_keys[_grid(inputs.key, options["KEYS"])]
    program(*pointers, largest_slope, density, to_key, to_value, to_key_rate, *scalars, **options)
    return grads


def measure_slopes(
    inputs: TileInputs,
    drawing: Drawing,
    row_scale: Tensor,
    out: Tensor,
    largest: Tensor,
    grad_out: Tensor,
    grad_density: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See :func:`sbmt.kernels.gpu.tiles.scales.slopes_of_queries`; ``row_scale`` is that of :func:`split`."""
    query, key, value, _, _, query_mask, key_mask = inputs
    heads, n_queries, n_keys = *query.shape[1:3], key.shape[2]
    options: dict[str, Any] = {"D": query.shape[3], "D_VALUE": value.shape[3], "ROWS": MEASURED}
    longest = largest.new_zeros(*largest.shape[:2], 2)
    program = tile_scales.longest_of_keys[_grid(key, MEASURED)]
    program(key, value, _unless_empty(key_mask), longest, heads, n_keys, -(-n_keys // MEASURED), **options)
    slope, delta, slope_scale = torch.empty_like(out, dtype=value.dtype), *(torch.empty_like(largest) for _ in range(2))
    found = slope, delta, slope_scale, largest.new_zeros(largest.shape[:2])
    options |= {"DROPOUT": drawing.dropout, "IS_SCORE_RULE": drawing.is_score_rule}
    given = query, _unless_empty(query_mask), grad_out.contiguous(), out, largest, row_scale, longest, grad_density
    program = tile_scales.slopes_of_queries[_grid(query, MEASURED)]
    program(*given, *found, heads, n_queries, -(-n_queries // MEASURED), **options)
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


def tile_shape(inputs: TileInputs, kernel: str) -> tuple[int, int, int, int]:
    """Queries and keys of a tile of one of the kernels, its warps, and its pipeline stages."""
    query, value = inputs.query, inputs.value
    is_narrow = max(query.shape[3], value.shape[3]) <= 64 and inputs.query_rate.shape[3] <= 128
    is_short = value.dtype.itemsize == 2
    size = "narrow" if is_narrow and is_short else "wide" if is_narrow or is_short else "huge"
    return (BY_GROUPS if has_warp_groups(query.device) else BY_WARPS)[size][kernel]


def _pointers(inputs: TileInputs) -> tuple[Any, ...]:
    row_scale = inputs.query_rate.new_empty(inputs.query_rate.shape[:3])
    rates = *split(inputs.query_rate, row_scale), row_scale, *split(inputs.key_rate, None)
    return *inputs[:3], *rates, _unless_empty(inputs.query_mask), _unless_empty(inputs.key_mask)


def _unless_empty(mask: Tensor) -> Tensor | None:
    return mask if mask.numel() else None


def _scalars(inputs: TileInputs, drawing: Drawing) -> tuple[int | float, ...]:
    _, heads, n_queries, _ = inputs.query.shape
    return *drawing[:3], heads, n_queries, inputs.key.shape[2], drawing.exploration


def _constants(inputs: TileInputs, drawing: Drawing, kernel: str) -> dict[str, Any]:
    rows, keys, warps, stages = tile_shape(inputs, kernel)
    widths = {"D": inputs.query.shape[3], "D_VALUE": inputs.value.shape[3], "CLUSTERS": inputs.query_rate.shape[3]}
    law = {"WINDOW": drawing.window, "DROPOUT": drawing.dropout, "IS_POISSON": drawing.is_poisson}
    return widths | law | {"ROWS": rows, "KEYS": keys, "num_warps": warps, "num_stages": stages}


def _grid(tokens: Tensor, block: int) -> tuple[int]:
    batch, heads, n, _ = tokens.shape
    return (-(-n // block) * batch * heads,)
