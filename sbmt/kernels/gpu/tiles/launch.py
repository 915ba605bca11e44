"""Launches the kernels over tiles."""

from typing import Any

import torch
from torch import Tensor

from sbmt.kernels.gpu.tiles import forward as tiles
from sbmt.kernels.gpu.tiles import gradients as tile_gradients
from sbmt.kernels.structures import Drawing, TileInputs
from sbmt.precision import accumulator

TILE = 32  # queries and keys of a tile: more would spill registers in the backward pass; chosen by that, not timed


def attend_tiles(inputs: TileInputs, drawing: Drawing) -> tuple[Tensor, Tensor, Tensor]:
    """Output, and of each query its degree, and the logarithm of its denominator to base 2.

    The output has the type of sums: in 16 bits it would double the error of the gates' gradients.
    """
    query, value = inputs.query, inputs.value
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=accumulator(value))
    degrees = query.new_empty(query.shape[:3], dtype=torch.int32)
    log_total = out.new_empty(query.shape[:3])
    options = _constants(inputs, drawing)
    arguments = (*_pointers(inputs), out, degrees, log_total, *_scalars(inputs, drawing))
    tiles.attend_tiles[_grid(query)](*arguments, **options)
    return out, degrees, log_total


def attend_tiles_backward(
    inputs: TileInputs, drawing: Drawing, out: Tensor, log_total: Tensor, grad_out: Tensor, grad_density: Tensor
) -> tuple[Tensor, ...]:
    """Gradients of query, key, value and both rate factors.

    Args:
        inputs: Those of the forward pass.
        drawing: That of the forward pass.
        out: The forward pass's output.
        log_total: The logarithms of its denominators.
        grad_out: The output's gradient.
        grad_density: For each graph, the gradient of one more edge.
    """
    slope, delta = grad_out.to(inputs.value.dtype).contiguous(), (grad_out * out).sum(-1)
    given = *_pointers(inputs), slope, delta, log_total, grad_density.to(log_total.dtype).contiguous()
    scalars, options = _scalars(inputs, drawing), _constants(inputs, drawing)
    options |= {"IS_SCORE_RULE": drawing.is_score_rule}
    grads = to_query, to_key, to_value, to_query_rate, to_key_rate = tuple(torch.empty_like(t) for t in inputs[:5])
    by_query, by_key = tile_gradients.differentiate_queries, tile_gradients.differentiate_keys
    by_query[_grid(inputs.query)](*given, to_query, to_query_rate, *scalars, **options)
    by_key[_grid(inputs.key)](*given, to_key, to_value, to_key_rate, *scalars, **options)
    return grads


def _pointers(inputs: TileInputs) -> tuple[Tensor | None, ...]:
    return *inputs[:5], *(mask if mask.numel() else None for mask in (inputs.query_mask, inputs.key_mask))


def _scalars(inputs: TileInputs, drawing: Drawing) -> tuple[int | float, ...]:
    _, heads, n_queries, _ = inputs.query.shape
    return *drawing[:3], heads, n_queries, inputs.key.shape[2], drawing.exploration


def _constants(inputs: TileInputs, drawing: Drawing) -> dict[str, Any]:
    widths = {"D": inputs.query.shape[3], "D_VALUE": inputs.value.shape[3], "CLUSTERS": inputs.query_rate.shape[3]}
    law = {"WINDOW": drawing.window, "DROPOUT": drawing.dropout, "IS_POISSON": drawing.is_poisson}
    return widths | law | {"ROWS": TILE, "KEYS": TILE, "num_warps": 4, "num_stages": 1}


def _grid(tokens: Tensor) -> tuple[int]:
    batch, heads, n, _ = tokens.shape
    return (-(-n // TILE) * batch * heads,)
