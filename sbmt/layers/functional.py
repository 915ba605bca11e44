"""SBM attention as a function: draw edges from a block model, gate them, and attend along them.

:func:`sbm_attention` checks its arguments, and so does :class:`~sbmt.SBMAttention`. Both then call
:func:`sample_and_attend`, which trusts them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dispatch import attend_along
from sbmt.attention.inputs import GateRule, check_attention_inputs, check_dropout
from sbmt.attention.tiles import attend_in_tiles, can_tile
from sbmt.block_model.density import sampled_density
from sbmt.block_model.exploration import check_exploration
from sbmt.block_model.model import BlockModel, check_block_model
from sbmt.counter_rng import draw_seed, number_examples
from sbmt.errors import SbmtError, check_choice, choose
from sbmt.graph.padding import check_as_many_keys
from sbmt.graph.patterns import check_window, is_in_window, sliding_window
from sbmt.samplers import SAMPLERS, draw_edges
from sbmt.types import AttentionOutput

# A GPU visits every pair up to this many keys, since following edges takes many kernel launches, and above this
# expected density, below which following edges takes fewer clock cycles by a count of instructions. Neither was timed.
TILES_UP_TO, TILES_ABOVE = 2048, 1 / 32


def sbm_attention(
    query: Float[Tensor, "batch heads n_queries d"],
    key: Float[Tensor, "batch heads n_keys d"],
    value: Float[Tensor, "batch heads n_keys d_value"],
    block_model: BlockModel,
    *,
    sampler: str = "exact",
    exploration: float = 0.0,
    gate_rule: GateRule = "score",
    window: int | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
    generator: torch.Generator | None = None,
    first_example: int = 0,
    return_edges: bool = False,
) -> AttentionOutput:
    """Samples edges from a block model and attends along them.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: Where the mask comes from; its masks say what is padding.
        sampler: See :func:`~sbmt.samplers.sample_edges`.
        exploration: δ in [0, 1).
        gate_rule: How the straight-through gate enters, see :func:`~sbmt.attention.edge_attention`.
        window: Also attend all tokens at most ``window / 2`` places away; 0 means self-loops, None means nothing.
            These edges are certain, so they carry no gradient to the block model.
        dropout: On the attention weights, in [0, 1).
        backend: See :func:`~sbmt.attention.edge_attention`. With ``sampler="bernoulli"``, ``"gpu"`` draws, gates and
            attends in one kernel and stores no mask (:func:`~sbmt.attention.tiles.attend_by_tiles`), unless edges are
            to be returned. On a GPU ``"auto"`` does so as well, and with ``sampler="exact"`` where sequences are short
            or many edges are expected: the law is the same, edges of one seed are not.
        generator: Source of one int64 for the edges, and one more if ``dropout > 0``.
        first_example: See :func:`~sbmt.samplers.sample_edges`.
        return_edges: Whether to return the edges.

    Returns:
        Values, the density of what was attended, the mean edge probability, and the edges if asked for.

    Raises:
        SbmtError: On shapes that do not fit, unknown names, or numbers out of range.

    Cost: O(n k² + edges · (k + d)).

    Paper: equations 3, 4, 8 and 9.
    """
    check_attention_inputs(query, key, value)
    check_block_model(block_model)
    expected = (*query.shape[:3], key.shape[2])
    if block_model.shape != expected:
        raise SbmtError(f"a block model of shape {expected}", block_model.shape, "infer it from these tokens")
    if block_model.block_matrix.device != query.device:
        device = block_model.block_matrix.device
        raise SbmtError(f"a block model on {query.device}, as the query", device, "build it there")
    choose("sampler", sampler, SAMPLERS)
    check_exploration(exploration)
    check_choice("gate_rule", gate_rule, GateRule)
    if window is not None:
        check_as_many_keys(block_model.shape)
        check_window(window)
    check_dropout(dropout)
    return sample_and_attend(
        query,
        key,
        value,
        block_model,
        sampler=sampler,
        exploration=exploration,
        gate_rule=gate_rule,
        window=window,
        dropout=dropout,
        backend=backend,
        generator=generator,
        first_example=number_examples(first_example, query.shape[0]),
        return_edges=return_edges,
    )


def sample_and_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: BlockModel,
    *,
    sampler: str,
    exploration: float,
    gate_rule: GateRule,
    window: int | None,
    dropout: float,
    backend: str,
    generator: torch.Generator | None,
    first_example: int,
    return_edges: bool,
) -> AttentionOutput:
    """:func:`sbm_attention` without its checks; ``first_example`` counts over all processes."""
    seed = draw_seed(generator)
    expected_density = block_model.expected_density()
    likely_density = expected_density + exploration
    if not return_edges and _are_drawn_in_tiles(query, value, block_model, sampler, backend, likely_density):
        drawing = exploration, gate_rule, window, dropout, seed, draw_seed(generator) if dropout else 0, first_example
        values, density = attend_in_tiles(query, key, value, block_model, *drawing)
        return AttentionOutput(values, density, expected_density)

    edges = draw_edges(block_model, sampler, exploration, seed, first_example)
    if window is not None:
        masks = edges.query_mask, edges.key_mask
        edges = edges.union(sliding_window(edges.shape, window, *masks, device=edges.keys.device))
    gate = block_model.gate(edges) if torch.is_grad_enabled() else None
    if gate is not None and not gate.requires_grad:
        gate = None
    if gate is not None and window is not None:  # edges that the window guarantees carry no gradient
        gate = gate.masked_fill(is_in_window(edges, window), 1.0)
    values = attend_along(query, key, value, edges, gate, gate_rule, backend, dropout, generator, first_example)
    return AttentionOutput(
        values=values,
        density=sampled_density(edges, gate),
        expected_density=expected_density,
        edges=edges if return_edges else None,
    )


def _are_drawn_in_tiles(
    query: Tensor, value: Tensor, block_model: BlockModel, sampler: str, backend: str, likely_density: Tensor
) -> bool:
    if sampler not in ("exact", "bernoulli") or not can_tile(query, value, block_model):
        return False
    if backend != "auto":
        return backend == "gpu" and sampler == "bernoulli"
    if query.device.type != "cuda":
        return False
    if sampler == "bernoulli" or block_model.shape[3] <= TILES_UP_TO:
        return True
    return float(likely_density.detach().mean()) >= TILES_ABOVE
