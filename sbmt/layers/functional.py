"""SBM attention as a function: draw edges from a block model, gate or reweight them, and attend along them."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.dispatch import attend_along, check_backend
from sbmt.attention.drawn import attend_while_drawing, can_draw_meanwhile
from sbmt.attention.dropout import dropout_scale
from sbmt.attention.fitted import attend_while_fitting, can_fit_meanwhile
from sbmt.attention.inputs import EdgeTerms, GateRule, check_attention_inputs, check_attention_settings, check_sink
from sbmt.attention.tiles import attend_by_tiles, is_tiled
from sbmt.block_model.density import sampled_density
from sbmt.block_model.exploration import check_exploration
from sbmt.block_model.fit import Learning, check_learning, fit_loss
from sbmt.block_model.gate import straight_through_gate
from sbmt.block_model.model import BlockModel, check_block_model
from sbmt.block_model.reweighting import weigh_edges
from sbmt.counter_rng import draw_seed, number_examples
from sbmt.errors import SbmtError, choose
from sbmt.graph.edges import reach_of
from sbmt.graph.patterns import all_pairs, is_in_window
from sbmt.samplers import SAMPLERS, draw_edges, law_of
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
    learning: Learning = "straight_through",
    edges_per_query: float | None = None,
    reweight: bool = False,
    sink: Float[Tensor, " heads"] | None = None,
    is_dense: bool = False,
) -> AttentionOutput:
    """Samples edges from a block model and attends along them.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: Where the mask comes from; its masks say what is padding. If it has one head, all heads of the
            queries attend along one graph, and a fit explains the mean of their attention.
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
            On the CPU ``"auto"`` and ``"cpu"`` draw and attend in one pass without gradients, dropout and edges to
            return, if the law is ``"exact"`` and clusters are crossed under the Poisson link, as in the preset
            ``fitted`` (:func:`~sbmt.attention.drawn.attend_while_drawing`): edges and values are the same. With
            gradients they attend along the edges of such clusters and fit these to the attention in one pass
            (:func:`~sbmt.attention.fitted.attend_while_fitting`).
        generator: Source of one int64 for the edges, and one more if ``dropout > 0``.
        first_example: See :func:`~sbmt.samplers.sample_edges`.
        return_edges: Whether to return the edges.
        learning: How the block model learns: by ``"straight_through"`` gates, or by ``"likelihood"``, that is from the
            output's ``auxiliary_loss`` alone (:func:`~sbmt.block_model.fit.fit_loss`), without any gate, nor gradients
            of the densities. The loss is left at 0 where gradients are off.
        edges_per_query: c > 0, the number of edges among which likelihood divides a query's attention.
        reweight: Whether a drawn edge's score is raised by -ln p
            (:func:`~sbmt.block_model.reweighting.reweighting_bias`).
        sink: ``(heads,)``, see :func:`~sbmt.attention.edge_attention`.
        is_dense: Attend all real pairs instead of those that are drawn, without reweighting, and fit the block model to
            that: a warm-up for likelihood, in O(n²).

    Returns:
        Values, the density of what was attended, the mean edge probability, the edges if asked for, and the auxiliary
        loss.

    Raises:
        SbmtError: On shapes that do not fit, unknown names, or numbers out of range.

    Cost: O(n k² + edges · (k + d)); O(n² d) while ``is_dense``.

    Paper: equations 3, 4, 8 and 9.
    """
    check_attention_inputs(query, key, value, window)
    check_attention_settings(gate_rule, window, dropout)
    check_learning(learning, edges_per_query)
    if sink is not None:
        check_sink(sink, query)
    if is_dense and learning != "likelihood":
        do = "attend with attention='full', which draws nothing"
        raise SbmtError("is_dense with learning='likelihood'", f"learning={learning!r}", do)
    choose("sampler", sampler, SAMPLERS)
    check_backend(backend, query.device)
    check_exploration(exploration)
    check_block_model(block_model, query, key)
    first_example = number_examples(first_example, query.shape[0])
    seed = draw_seed(generator)
    dropout_seed = draw_seed(generator) if dropout else 0

    is_gated_only = learning == "straight_through" and not reweight and sink is None and not return_edges
    if is_gated_only and is_tiled(query, value, block_model, sampler, backend, exploration):
        drawing = exploration, gate_rule, window, dropout, seed, dropout_seed, first_example
        values, density = attend_by_tiles(query, key, value, block_model, *drawing)
        return AttentionOutput(values, density, block_model.expected_density())

    is_plain = not (is_dense or dropout or return_edges)
    if is_plain and can_draw_meanwhile(block_model, sampler, backend):
        rest = exploration, window, reweight, sink, seed, first_example
        values, *densities = attend_while_drawing(query, key, value, block_model, *rest)
        return AttentionOutput(values, *(density.expand(-1, query.shape[1]) for density in densities))

    if is_dense:
        masks = block_model.query_mask, block_model.key_mask
        edges = all_pairs(block_model.shape, *masks, device=query.device)
    else:
        edges = draw_edges(block_model, sampler, exploration, seed, first_example, window)
    law, link = law_of(sampler, block_model.link), block_model.link
    is_fitted = learning == "likelihood" and torch.is_grad_enabled()
    heads = query.shape[1]
    if is_fitted and not is_dense and can_fit_meanwhile(block_model, law, backend):
        assert edges_per_query is not None  # likelihood has it
        is_copied = edges.shape[1] < heads and (dropout or return_edges)
        many = edges.for_heads(heads)[0] if is_copied else edges
        scale = dropout_scale(many, dropout, dropout_seed, first_example, value.dtype) if dropout else None
        fit = exploration, window, reweight, sink, scale, edges_per_query
        values, loss, expected_density = attend_while_fitting(query, key, value, block_model, edges, *fit)
        density, expected_density = (t.expand(-1, heads) for t in (edges.density(), expected_density))
        return AttentionOutput(values, density, expected_density, many if return_edges else None, loss)

    gate = bias = None
    is_closed = block_model.has_closed_density
    needs_rate = learning == "likelihood" or reweight or not is_closed
    rate = block_model.edge_rate(edges) if needs_rate else query.new_empty(0)
    if learning == "straight_through" and torch.is_grad_enabled():
        gate = straight_through_gate(link.unclamped(rate)) if needs_rate else block_model.gate(edges)
        gate = gate if gate.requires_grad else None
        if gate is not None and window is not None:
            gate = gate.masked_fill(is_in_window(edges, window), 1.0)
    if needs_rate:
        seen = rate.detach() if learning == "likelihood" else rate  # which learns from its own loss alone
        reach = max(edges.shape[2:]) if is_dense else reach_of(window)  # there whatever the block model says
        bias, expected_density = weigh_edges(edges, seen, link, law, exploration, reach)
        bias = bias if reweight else None
    if is_closed:
        expected_density = block_model.expected_density()
        expected_density = expected_density.detach() if learning == "likelihood" else expected_density

    graph = edges
    density = sampled_density(graph, gate).expand(-1, heads)
    source = None
    if graph.shape[1] < heads:  # shared
        edges, source = graph.for_heads(heads)
        gate, bias = (None if t is None else t.index_select(0, source) for t in (gate, bias))
    scale = dropout_scale(edges, dropout, dropout_seed, first_example, value.dtype) if dropout else None
    terms = EdgeTerms(gate, gate_rule, bias, sink, scale, return_weights=is_fitted)
    values, weights = attend_along(query, key, value, edges, terms, backend)

    output = AttentionOutput(values, density, expected_density.expand(-1, heads), edges if return_edges else None)
    if not is_fitted:
        return output
    assert weights is not None and edges_per_query is not None  # likelihood has both
    targets = weights.detach()
    if source is not None:
        targets = targets.new_zeros(graph.n_edges).index_add_(0, source, targets) / heads
    fitted = block_model, graph, rate, targets, edges_per_query, exploration, window
    return replace(output, auxiliary_loss=fit_loss(*fitted))
