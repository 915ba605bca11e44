"""Fitting a block model to the attention by likelihood, from the sampled edges alone."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_choice, describe, is_number
from sbmt.graph.csr import near_edges
from sbmt.graph.edges import EdgeList, reach_of
from sbmt.kernels import poisson as kernels
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.types import AttentionOutput

Learning = Literal["straight_through", "likelihood"]
"""What teaches a block model: the task, through gates, or the attention that its edges were given."""


def check_learning(learning: Learning, edges_per_query: float | None) -> None:
    """Raises SbmtError unless the name is known, and c > 0 is given where and only where it is needed."""
    check_choice("learning", learning, Learning)
    if learning == "straight_through":
        if edges_per_query is not None:
            do = "leave it out, or name that way of learning too"
            raise SbmtError("edges_per_query with learning='likelihood'", f"learning={learning!r}", do)
    elif edges_per_query is None or not is_number(edges_per_query) or not 0 < edges_per_query < float("inf"):
        raise SbmtError("edges_per_query > 0 with learning='likelihood'", describe(edges_per_query), "16 is a start")


def fit_loss(
    block_model: BlockModel,
    edges: EdgeList,
    rate: Float[Tensor, " n_edges"],
    weights: Float[Tensor, " n_edges"],
    edges_per_query: float,
    exploration: float,
    window: int | None = None,
) -> Float[Tensor, ""]:
    r"""The negative log-likelihood of a Poisson graph that has $c\, a_{ij}$ edges between i and j, up to a constant.

    $$\frac{1}{N} \sum_i \Big[\sum_j r_{ij} - c \sum_{j \in M_i} a_{ij} \ln(r_{ij} + \delta)\Big]$$

    over the N real queries of all examples and heads. The first sum runs over all keys and has a closed form; the
    second runs over the drawn edges, and estimates that over all keys if the attention was reweighted. Where a head's
    overall rate is optimal, the rates of a query sum on average to c times the attention that it gives away, so that
    at most c edges per query are expected.

    Args:
        block_model: What is fitted.
        edges: The edges that were attended.
        rate: Their rates without exploration, by whose gradient the block model learns.
        weights: Their attention, as targets; no gradient passes.
        edges_per_query: c.
        exploration: δ with which the edges were drawn.
        window: Edges between tokens at most ``window / 2`` places apart were not drawn, and no rate has to explain
            them: they take no part in the second sum.

    Returns:
        A scalar; 0 where there is no real query.

    Cost: O(n k + k² + edges).

    Paper: not in it; after Ball, Karrer and Newman (2011), with attention in place of counted edges.
    """
    targets, mask = weights.detach().to(rate.dtype), (edges.row_ptr, edges.keys, *edges.shape[2:])
    use_gpu = not can_run_on(rate.device)
    if has_gpu_kernels(rate.device) or not use_gpu:
        gained, _ = kernels.gain(rate, targets, *mask, exploration, reach_of(window), use_gpu)
    else:
        targets = targets if window is None else targets.masked_fill(near_edges(*mask, reach_of(window)), 0.0)
        gained = torch.xlogy(targets, (rate + exploration).clamp(min=torch.finfo(rate.dtype).tiny)).sum()
    return per_query(block_model.sum_of_rates().sum() - edges_per_query * gained, edges)


def per_query(loss: Tensor, edges: EdgeList) -> Float[Tensor, ""]:
    """A loss over the number of real queries of all examples and heads; 0 where there is none."""
    batch, heads, n_queries, _ = edges.shape
    if edges.query_mask is None:
        return loss / (batch * heads * n_queries)
    return loss / (heads * edges.query_mask.expand(batch, -1).sum()).clamp(min=1)


def auxiliary_loss(outputs: Any) -> Float[Tensor, ""]:
    """The sum of the layers' auxiliary losses, to be added to the loss of the task.

    Args:
        outputs: What a model returned, or the attention outputs of its layers.

    Raises:
        SbmtError: If there is no attention output.

    Example:
        >>> import sbmt
        >>> attention = sbmt.build_attention("sbm", preset="fitted", d_head=8, n_heads=2, n_clusters=8)
        >>> x = torch.randn(1, 2, 5, 8)
        >>> bool(auxiliary_loss([attention(x, x, x)]) != 0)
        True
    """
    attention = getattr(outputs, "attention", outputs)
    if isinstance(attention, AttentionOutput):
        attention = [attention]
    if not isinstance(attention, Sequence) or not attention or not all(hasattr(o, "auxiliary_loss") for o in attention):
        raise SbmtError("the output of a model", type(outputs).__name__, "pass what its forward returned")
    total = attention[0].auxiliary_loss
    for output in attention[1:]:
        total = total + output.auxiliary_loss
    return total
