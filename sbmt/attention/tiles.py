"""Attention over all pairs on a GPU, whose mask is drawn tile by tile and never stored."""

from typing import Any

import torch
from torch import Tensor

from sbmt.attention.inputs import GateRule, check_attention_inputs, check_dropout
from sbmt.block_model.exploration import check_exploration
from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_choice
from sbmt.graph.padding import check_as_many_keys
from sbmt.graph.patterns import check_window
from sbmt.kernels.gpu import accumulator, can_run_on, is_interpreted

MAX_WIDTH, MAX_CLUSTERS = 128, 256  # of a head or a value, and per head: what fits on the chip beside a tile
SMALL_WIDTH, SMALL_CLUSTERS = 64, 128  # the same on chips whose processors have less memory than
SHARED_BYTES = 150_000


def can_tile(query: Tensor, value: Tensor, block_model: BlockModel) -> bool:
    """Whether :func:`attend_by_tiles` serves these inputs."""
    width, clusters = (MAX_WIDTH, MAX_CLUSTERS) if _is_roomy(query.device) else (SMALL_WIDTH, SMALL_CLUSTERS)
    is_narrow = max(query.shape[3], value.shape[3]) <= width and block_model.n_clusters <= clusters
    is_served = is_interpreted() or torch.float64 not in (query.dtype, value.dtype)  # Triton 3.6 cannot build those
    return is_narrow and is_served and block_model.link.has_kernels and can_run_on(query.device)


def _is_roomy(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    about = torch.cuda.get_device_properties(device)
    return bool(getattr(about, "shared_memory_per_block_optin", SHARED_BYTES) >= SHARED_BYTES)


def attend_by_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: BlockModel,
    *,
    exploration: float = 0.0,
    gate_rule: GateRule = "score",
    window: int | None = None,
    dropout: float = 0.0,
    seed: int,
    dropout_seed: int = 0,
    first_example: int = 0,
) -> tuple[Tensor, Tensor]:
    r"""Draws, gates and attends in one kernel: what the sampler ``bernoulli`` and any backend compute together.

    Each tile forms its probabilities, draws its mask in registers, and takes part in a running softmax; going back,
    tiles are drawn again. Edges are those that ``bernoulli`` draws from the same seed, but where a uniform number lies
    within rounding of its probability.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: Where masks come from; its masks say what is padding.
        exploration: δ in [0, 1).
        gate_rule: Where the straight-through gate enters.
        window: Pairs with |i − j| ≤ window / 2 are certain; None for none.
        dropout: On the attention weights, in [0, 1).
        seed: Of the edges.
        dropout_seed: Of dropout.
        first_example: Number of the batch's first example.

    Returns:
        Values ``(batch, heads, n_queries, d_value)`` and the density ``(batch, heads)``, with gradients to query, key,
        value and the block model.

    Raises:
        SbmtError: Where Triton serves no such tensors, or heads or clusters are too many for a tile: more than 128 and
            256, on small chips 64 and 128.

    Cost: O(n² (d + k)) time, O(n · (d + k)) memory.
    """
    check_attention_inputs(query, key, value)
    if block_model.shape != (*query.shape[:3], key.shape[2]):
        wanted = (*query.shape[:3], key.shape[2])
        raise SbmtError(f"a block model of shape {wanted}", block_model.shape, "infer it from these tokens")
    check_choice("gate_rule", gate_rule, GateRule)
    check_dropout(dropout)
    check_exploration(exploration)
    if window is not None:
        check_as_many_keys(block_model.shape)
        check_window(window)
    if not can_tile(query, value, block_model):
        got = f"{query.dtype} {tuple(query.shape)} on {query.device} and {block_model.n_clusters} clusters"
        expected = f"no float64, heads up to {MAX_WIDTH} wide and {MAX_CLUSTERS} clusters (small chips: half), on a GPU"
        raise SbmtError(expected, got, 'use sampler="exact"')
    drawing = exploration, gate_rule, window, dropout, seed, dropout_seed, first_example
    return attend_in_tiles(query, key, value, block_model, *drawing)


def attend_in_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: BlockModel,
    exploration: float,
    gate_rule: GateRule,
    window: int | None,
    dropout: float,
    seed: int,
    dropout_seed: int,
    first_example: int,
) -> tuple[Tensor, Tensor]:
    """:func:`attend_by_tiles` without its checks."""
    dtype = torch.promote_types(query.dtype, key.dtype)
    rates = block_model.rate_factors()
    masks = [
        rates[0].new_empty(0, dtype=torch.bool) if mask is None else mask.expand(query.shape[0], -1)
        for mask in (block_model.query_mask, block_model.key_mask)
    ]
    inputs = [t.contiguous() for t in (query.to(dtype), key.to(dtype), value, *rates, *masks)]
    drawing = (seed, dropout_seed, first_example, exploration, -1 if window is None else window // 2, dropout)
    rules = block_model.link.is_poisson, gate_rule == "score"
    out, density, *_ = _attend_tiles(*inputs, block_model.n_pairs, *drawing, *rules)
    return out.to(value.dtype), density


@torch.library.custom_op("sbmt::attend_tiles", mutates_args=())
def _attend_tiles(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rate: Tensor,
    key_rate: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    n_pairs: Tensor,
    seed: int,
    dropout_seed: int,
    first_example: int,
    exploration: float,
    window: int,
    dropout: float,
    is_poisson: bool,
    is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Values, density, and for the way back the logarithms of denominators, in powers of 2, and the largest weights."""
    from sbmt.kernels.gpu.tiles.launch import Drawing, attend_tiles

    inputs = query, key, value, query_rate, key_rate, query_mask, key_mask
    drawing = Drawing(seed, dropout_seed, first_example, exploration, window, dropout, is_poisson, is_score_rule)
    with torch.cuda.device_of(query):
        out, degrees, log_total, largest = attend_tiles(inputs, drawing)
    density = degrees.sum(-1).to(query_rate.dtype) / n_pairs.clamp(min=1)[:, None]
    return out, density, log_total, largest


@_attend_tiles.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, query_rate: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dtype = accumulator(value)
    out = value.new_empty(*query.shape[:3], value.shape[3], dtype=dtype)
    row = query.new_empty(query.shape[:3], dtype=dtype)
    return out, query_rate.new_empty(query.shape[:2]), row, row.clone()


@torch.library.custom_op("sbmt::attend_tiles_backward", mutates_args=())
def _attend_tiles_backward(
    grad_out: Tensor,
    grad_density: Tensor,
    out: Tensor,
    log_total: Tensor,
    largest: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_rate: Tensor,
    key_rate: Tensor,
    query_mask: Tensor,
    key_mask: Tensor,
    n_pairs: Tensor,
    seed: int,
    dropout_seed: int,
    first_example: int,
    exploration: float,
    window: int,
    dropout: float,
    is_poisson: bool,
    is_score_rule: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value and the rate factors."""
    from sbmt.kernels.gpu.tiles.launch import Drawing, attend_tiles_backward

    inputs = query, key, value, query_rate, key_rate, query_mask, key_mask
    drawing = Drawing(seed, dropout_seed, first_example, exploration, window, dropout, is_poisson, is_score_rule)
    per_edge = grad_density / n_pairs.clamp(min=1)[:, None]
    with torch.cuda.device_of(query):
        return attend_tiles_backward(inputs, drawing, out, log_total, largest, grad_out, per_edge)


@_attend_tiles_backward.register_fake
def _(
    grad_out: Tensor, grad_density: Tensor, out: Tensor, log_total: Tensor, largest: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(t) for t in rest[:5])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    out, _, log_total, largest = output
    ctx.save_for_backward(out, log_total, largest, *inputs[:8])
    ctx.drawing = inputs[8:]
    ctx.mark_non_differentiable(log_total, largest)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_out: Tensor | None, grad_density: Tensor | None, *_: Any
) -> tuple[Tensor | None, ...]:
    if grad_out is None and grad_density is None:
        return (None,) * 16
    out, log_total, largest, *inputs = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grad_density = inputs[3].new_zeros(out.shape[:2]) if grad_density is None else grad_density
    grads = _attend_tiles_backward(grad_out, grad_density, out, log_total, largest, *inputs, *ctx.drawing)
    return *grads, *(None,) * 11


_attend_tiles.register_autograd(_differentiate, setup_context=_keep)
