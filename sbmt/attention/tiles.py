"""Attention over all pairs on a GPU, with a mask that is drawn tile by tile and never stored."""

import torch
from torch import Tensor

from sbmt.attention.inputs import GateRule
from sbmt.block_model.model import BlockModel
from sbmt.graph.edges import reach_of
from sbmt.kernels.gpu import can_run_on, is_interpreted
from sbmt.kernels.structures import Drawing
from sbmt.kernels.tiles import attend_tiles

MAX_WIDTH, MAX_CLUSTERS = 128, 256  # of a head or a value, and per head: what fits on the chip beside a tile
# On a GPU, SBM attention visits every pair up to this many keys, since following edges takes many kernel launches, and
# above this expected density, below which edges take fewer clock cycles by a count of instructions. Neither was timed.
TILES_UP_TO, TILES_ABOVE = 2048, 1 / 32


def can_tile(query: Tensor, value: Tensor, block_model: BlockModel) -> bool:
    """Whether :func:`attend_by_tiles` serves these inputs."""
    is_narrow = max(query.shape[3], value.shape[3]) <= MAX_WIDTH and block_model.n_clusters <= MAX_CLUSTERS
    is_served = is_interpreted() or torch.float64 not in (query.dtype, value.dtype)  # Triton 3.6 cannot build those
    return is_narrow and is_served and block_model.link.has_kernels and can_run_on(query.device)


def is_tiled(
    query: Tensor, value: Tensor, block_model: BlockModel, sampler: str, backend: str, exploration: float
) -> bool:
    """Whether SBM attention draws its mask tile by tile: where it was asked to, or where that should be faster.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: Where the mask comes from.
        sampler: The law's name; tiles follow that of ``"exact"`` and ``"bernoulli"``.
        backend: ``"gpu"`` asks for tiles under ``sampler="bernoulli"``; ``"auto"`` leaves the choice to this function.
        exploration: δ.
    """
    if block_model.shape[1] != query.shape[1]:  # one graph for all heads
        return False
    is_asked_for = backend == "gpu" and sampler == "bernoulli"
    is_free = backend == "auto" and sampler in ("exact", "bernoulli") and query.device.type == "cuda"
    if not (is_asked_for or is_free) or not can_tile(query, value, block_model):
        return False
    if sampler == "bernoulli" or block_model.shape[3] <= TILES_UP_TO:
        return True
    mean_rate = block_model.sum_of_rates().detach() / block_model.n_pairs.clamp(min=1)[:, None]
    return float(mean_rate.clamp(max=1.0).mean()) + exploration >= TILES_ABOVE  # an upper bound of the density


def attend_by_tiles(
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
    r"""Draws, gates and attends in one kernel: what the sampler ``bernoulli`` and any backend compute together.

    Each tile forms its probabilities, draws its mask in registers, and takes part in a running softmax; the backward
    pass draws the tiles again. The edges are those that ``bernoulli`` draws from the same seed, except where a uniform
    number lies within rounding of its probability.

    The arguments are those of :func:`sbmt.sbm_attention`, which checks them, for inputs that :func:`can_tile` accepts;
    ``seed`` is that of the edges.

    Returns:
        Values ``(batch, heads, n_queries, d_value)`` and the density ``(batch, heads)``, with gradients to query, key,
        value and the block model.

    Cost: O(n² (d + k)) time, O(n · (d + k)) memory.
    """
    dtype = torch.promote_types(query.dtype, key.dtype)
    rates = block_model.query_rates, block_model.key_membership
    masks = [
        rates[0].new_empty(0, dtype=torch.bool) if mask is None else mask.expand(query.shape[0], -1)
        for mask in (block_model.query_mask, block_model.key_mask)
    ]
    inputs = [t.contiguous() for t in (query.to(dtype), key.to(dtype), value, *rates, *masks)]
    rules = block_model.link.is_poisson, gate_rule == "score"
    drawing = Drawing(seed, dropout_seed, first_example, exploration, reach_of(window), dropout, *rules)
    out, density, *_ = attend_tiles(*inputs, block_model.n_pairs, *drawing)
    return out.to(value.dtype), density
