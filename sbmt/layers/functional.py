"""Functions for SBM attention, which draw edges from a block model, gate or reweight them, and attend along them."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.attention.cache import Cache
from sbmt.attention.dispatch import attend_along, check_attention_inputs, check_backend, check_dropout, dropout_scale
from sbmt.attention.inputs import EdgeTerms, GateRule, check_numbers
from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.fit import Learning, check_learning, fit_loss, sampled_density, weigh_edges
from sbmt.block_model.model import BlockModel, check_exploration, probability, reweighting_bias
from sbmt.counter_rng import draw_seed, number_examples
from sbmt.errors import SbmtError, check_choice, choose, is_number
from sbmt.graph.edges import EdgeList, check_window, reach_of
from sbmt.graph.patterns import all_pairs
from sbmt.kernels.decoding import draw_next, remember
from sbmt.kernels.operators import can_run_on, edge_rate
from sbmt.layers.drawn import attend_and_draw
from sbmt.samplers import SAMPLERS, draw_edges, law_of
from sbmt.types import AttentionOutput, has_kernels_for


class MaskSettings(NamedTuple):
    """The settings for drawing a mask, attending along it and learning it.

    Fields have the meaning of the :class:`~sbmt.layers.SBMAttention` arguments of the same name, except for these:

    Attributes:
        exploration: A number δ in [0, 1).
        window: 0 means self-loops. Edges in a window are certain, so the block model gets no gradient through them.
        learning: ``"likelihood"`` uses no gates, and its densities have no gradients. Its loss, the output's
            ``auxiliary_loss``, is 0 when gradients are disabled.
        sink: ``(heads,)``; see :func:`~sbmt.attention.edge_attention`.
        is_dense: Whether to attend to all real pairs instead of drawn edges, without reweighting, and to fit the block
            model to them, in O(n²). This is a warm-up for ``"likelihood"``.
    """

    sampler: str = "exact"
    exploration: float = 0.0
    gate_rule: GateRule = "score"
    window: int | None = None
    dropout: float = 0.0
    backend: str = "auto"
    learning: Learning = "straight_through"
    edges_per_query: float | None = None
    reweight: bool | float = False
    sink: Tensor | None = None
    is_dense: bool = False

    def check(self, device: torch.device | None = None) -> None:
        """Raises SbmtError unless all names are known, numbers are in range, and the backend runs on the device."""
        choose("sampler", self.sampler, SAMPLERS)
        check_choice("gate_rule", self.gate_rule, GateRule)
        if self.window is not None:
            check_window(self.window)
        check_dropout(self.dropout)
        check_backend(self.backend, device)
        check_learning(self.learning, self.edges_per_query)
        check_exploration(self.exploration)
        if not isinstance(self.reweight, bool) and not (is_number(self.reweight) and 0 < self.reweight <= 1):
            raise SbmtError("reweight to be True, False, or a number in (0, 1]", self.reweight, "use True")


def sbm_attention(
    query: Float[Tensor, "batch heads n_queries d"],
    key: Float[Tensor, "batch heads n_keys d"],
    value: Float[Tensor, "batch heads n_keys d_value"],
    block_model: BlockModel,
    *,
    generator: torch.Generator | None = None,
    first_example: int = 0,
    return_edges: bool = False,
    **settings: Any,
) -> AttentionOutput:
    """Samples edges from a block model and attends along them.

    Args:
        query: ``(batch, heads, n_queries, d)``.
        key: ``(batch, heads, n_keys, d)``.
        value: ``(batch, heads, n_keys, d_value)``.
        block_model: The distribution of the mask; its masks mark padding.
        generator: Source of one int64 for the edges, and one more if ``dropout > 0``.
        first_example: As in :func:`~sbmt.samplers.sample_edges`.
        return_edges: Whether to return the edges.
        **settings: The fields of :class:`MaskSettings`.

    Raises:
        SbmtError: If shapes do not match, names are unknown, or numbers are out of range.

    Cost: O(n k² + edges · (k + d)); O(n² d) if ``is_dense``.

    Paper: equations 3, 4, 8 and 9.
    """
    if unknown := [name for name in settings if name not in MaskSettings._fields]:
        raise SbmtError(f"settings among {', '.join(MaskSettings._fields)}", ", ".join(unknown), "check the spelling")
    chosen = MaskSettings(**settings)
    if not isinstance(block_model, BlockModel):
        raise SbmtError("a BlockModel", type(block_model).__name__, "build one from memberships and a block matrix")
    check_attention_inputs(query, key, value, None if block_model.causal else chosen.window)
    chosen.check(query.device)
    check_numbers("sink", chosen.sink, query.shape[1], query.device)
    expected = (*query.shape[:3], key.shape[2])
    if block_model.shape != expected or block_model.device != query.device:
        got = f"{block_model.shape} on {block_model.device}"
        raise SbmtError(f"a block model of shape {expected} on {query.device}", got, "infer it from these tokens")
    return attend_through(query, key, value, block_model, chosen, generator, first_example, return_edges)


def attend_through(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: BlockModel,
    settings: MaskSettings,
    generator: torch.Generator | None,
    first_example: int,
    return_edges: bool,
) -> AttentionOutput:
    """Computes :func:`sbm_attention` without its checks."""
    sampler, exploration, gate_rule, window, dropout, backend, learning, c, reweight, sink, is_dense = settings
    if is_dense and learning != "likelihood":
        do = "set is_dense=False, or use attention='full'"
        raise SbmtError("learning='likelihood' with is_dense=True", f"learning={learning!r}", do)
    first_example = number_examples(first_example, query.shape[0])
    blocks = block_model.part_blocks if isinstance(block_model, CrossedModel) else block_model.block_matrix
    if has_kernels_for(blocks) and not return_edges:
        if (found := attend_and_draw(query, key, value, block_model, settings, generator, first_example)) is not None:
            return found
    seed, link = draw_seed(generator), block_model.link
    if is_dense:
        edges = all_pairs(block_model.shape, *block_model.masks, device=query.device)
    else:
        edges = draw_edges(block_model, sampler, exploration, seed, first_example, window)
    scale = dropout_scale(edges, dropout, draw_seed(generator), first_example, value.dtype) if dropout else None

    gate = bias = rate = None
    is_near = None if window is None or not torch.is_grad_enabled() else edges.is_near(window)
    is_fitted = learning == "likelihood" and torch.is_grad_enabled()
    if learning == "likelihood" or reweight or not block_model.has_closed_density:
        rate = block_model.edge_rate(edges)
        known = rate.detach() if learning == "likelihood" else rate  # only the fit gives it gradients
        reach = max(block_model.shape[2:]) if is_dense else reach_of(window)
        bias, expected = weigh_edges(edges, known, link, law_of(sampler, link), exploration, reach, reweight)
    else:
        expected = block_model.expected_density()
    if learning == "straight_through" and torch.is_grad_enabled():
        gate = block_model.gate(edges)
        if is_near is not None:
            gate = gate.masked_fill(is_near, 1.0)
        gate = gate if gate.requires_grad else None

    terms = EdgeTerms(gate, gate_rule, bias if reweight else None, sink, scale, return_weights=is_fitted)
    values, weights = attend_along(query, key, value, edges, terms, backend)
    loss = values.new_zeros((), dtype=torch.float32)
    if is_fitted:
        assert rate is not None and weights is not None and c is not None  # likelihood has all three
        loss = fit_loss(block_model, edges, rate, weights, c, exploration, is_near)
    density = edges.density() if gate is None else sampled_density(edges, gate)
    return AttentionOutput(values, density, expected, edges if return_edges else None, loss)


def attend_next(
    layer: Any, query: Tensor, key: Tensor, value: Tensor, cache: Cache, generator: torch.Generator | None
) -> AttentionOutput | None:
    """Attends from an SBM layer's new tokens to all tokens so far, whose crossed memberships are cached by cluster.

    Returns None if memberships are not crossed, the sampler is not exact, or loops cannot be compiled.

    Cost: O(edges · d + √k (d + groups)) per token and head, independent of the context length except for a binary
    search within a cluster.
    """
    if layer.membership != "crossed" or layer.sampler != "exact" or not can_run_on(query.device):
        return None
    model = layer.block_model(query, key)
    assert isinstance(model, CrossedModel)
    query_part, query_weight, blocks, new_part, new_weight = model.factors
    key, value, part, weight = cache.append(key, value, new_part, new_weight)
    if cache.kept is None:
        cache.kept = remember(query.shape[0], query.shape[1], blocks), blocks
    kept, blocks = cache.kept  # in untrained layers rates depend on the number of keys; the first call fixes them
    offset, reach = cache.length - query.shape[2], reach_of(layer.window)
    factors = query_part, query_weight, blocks, part, weight
    row_ptr, keys = draw_next(kept, *factors, offset, draw_seed(generator), number_examples(0, query.shape[0]), reach)
    edges = EdgeList(row_ptr, keys, (*query.shape[:3], key.shape[2]))
    bias = None
    if layer.reweight:
        drawn_with = probability("poisson", edge_rate(*factors, row_ptr, keys))
        place = offset + edges.rows() % query.shape[2]
        bias = reweighting_bias(drawn_with.masked_fill(place - keys <= reach, 1.0), layer.reweight)
    values, _ = attend_along(query, key, value, edges, EdgeTerms(bias=bias, sink=layer.sink), layer.backend)
    n_visible = torch.arange(offset + 1, cache.length + 1, device=query.device).sum()
    density = edges.degrees().view(edges.shape[:3]).sum(2) / n_visible
    return AttentionOutput(values, density, density, edges)
