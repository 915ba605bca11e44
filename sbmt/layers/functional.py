"""SBM attention as a function: draw edges from a block model, gate them, and attend along them."""

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dispatch import attend_along, check_backend, is_tiled
from sbmt.attention.dropout import dropout_scale
from sbmt.attention.inputs import EdgeTerms, GateRule, check_attention_inputs, check_attention_settings
from sbmt.attention.tiles import attend_by_tiles
from sbmt.block_model.density import sampled_density
from sbmt.block_model.exploration import check_exploration
from sbmt.block_model.model import BlockModel, check_block_model
from sbmt.counter_rng import draw_seed, number_examples
from sbmt.errors import choose
from sbmt.graph.patterns import is_in_window
from sbmt.samplers import SAMPLERS, draw_edges
from sbmt.types import AttentionOutput


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
    check_attention_inputs(query, key, value, window)
    check_attention_settings(gate_rule, window, dropout)
    choose("sampler", sampler, SAMPLERS)
    check_backend(backend, query.device)
    check_exploration(exploration)
    check_block_model(block_model, query, key)
    expected_density = block_model.expected_density()
    first_example = number_examples(first_example, query.shape[0])
    seed = draw_seed(generator)
    dropout_seed = draw_seed(generator) if dropout else 0

    if not return_edges and is_tiled(query, value, block_model, sampler, backend, expected_density + exploration):
        drawing = exploration, gate_rule, window, dropout, seed, dropout_seed, first_example
        values, density = attend_by_tiles(query, key, value, block_model, *drawing)
        return AttentionOutput(values, density, expected_density)

    edges = draw_edges(block_model, sampler, exploration, seed, first_example)
    if window is not None:
        edges = edges.with_window(window)
    gate = block_model.gate(edges) if torch.is_grad_enabled() else None
    if gate is not None and not gate.requires_grad:
        gate = None
    if gate is not None and window is not None:  # edges that the window guarantees carry no gradient
        gate = gate.masked_fill(is_in_window(edges, window), 1.0)
    scale = dropout_scale(edges, dropout, dropout_seed, first_example, value.dtype) if dropout else None
    terms = EdgeTerms(gate, gate_rule, weight_scale=scale)
    values, _ = attend_along(query, key, value, edges, terms, backend)
    density = sampled_density(edges, gate)
    return AttentionOutput(values, density, expected_density, edges if return_edges else None)
