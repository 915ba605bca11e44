"""Attention that the block model of its mask is fitted to meanwhile: what training by likelihood needs, in one pass."""

from typing import TypeGuard

from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.fit import per_query
from sbmt.block_model.link import Link
from sbmt.block_model.model import BlockModel
from sbmt.block_model.reweighting import SMALLEST_PROBABILITY
from sbmt.errors import check_untransformed
from sbmt.graph.edges import EdgeList, reach_of
from sbmt.graph.padding import share_of_pairs
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.fit import attend_and_fit
from sbmt.precision import accumulator


def can_fit_meanwhile(block_model: BlockModel, law: Link, backend: str) -> TypeGuard[CrossedModel]:
    """Whether :func:`attend_while_fitting` serves these: parts that the CPU has drawn from by the Poisson law."""
    is_served = isinstance(block_model, CrossedModel) and can_run_on(block_model.device)
    return is_served and block_model.link.is_poisson and law.is_poisson and backend in ("auto", "cpu")


def attend_while_fitting(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    block_model: CrossedModel,
    edges: EdgeList,
    exploration: float,
    window: int | None,
    reweight: bool,
    sink: Tensor | None,
    weight_scale: Tensor | None,
    edges_per_query: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighs edges, attends, and finds the fit's gradients, some rows at a time, so that rates are never stored.

    Values, loss and gradients are those of :func:`sbmt.edge_attention` and :func:`~sbmt.block_model.fit.fit_loss`. The
    arguments are those of :func:`sbmt.sbm_attention`, which checks them, for inputs that :func:`can_fit_meanwhile`
    accepts, and dropout's factors for the edges of each head, if there are any.

    Returns:
        Values ``(batch, heads, n_queries, d_value)``, the loss, and the density that is expected without exploration,
        ``(batch, 1)`` if heads share a graph, and ``(batch, heads)`` if they do not.

    Cost: O(n k + edges · d) time, O(edges + n · d) memory.
    """
    check_untransformed(query, key, value)
    given = [t.to(accumulator(value)) for t in (query, key, value)]
    shape, none = block_model.shape, given[0].new_empty(0)
    terms = (none if t is None else t.to(none.dtype) for t in (sink, weight_scale))
    tokens = *(t.flatten(0, 2).contiguous() for t in given), *terms
    smallest = SMALLEST_PROBABILITY if reweight else 1.0
    mask = edges.row_ptr, edges.keys, *shape[2:]
    fit = exploration, reach_of(window), smallest, edges_per_query
    out, loss, expected, *_ = attend_and_fit(*tokens, *block_model.factors(), *mask, *fit)
    expected = share_of_pairs(expected.view(shape[:2]), shape, edges.query_mask, edges.key_mask)
    return out.unflatten(0, query.shape[:3]).to(value.dtype), per_query(loss, edges), expected
