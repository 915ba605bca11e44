"""Learning a block model from drawn edges: density, a penalty on density, reweighting, and the fit by likelihood."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sbmt.block_model.model import BlockModel, Link, probability, reweighting_bias, smallest_probability
from sbmt.errors import SbmtError, check_choice, describe, is_number
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import Shape, share_of_pairs
from sbmt.kernels import operators
from sbmt.types import AttentionOutput

DensityKind = Literal["sampled", "expected"]
Learning = Literal["straight_through", "likelihood"]
"""Whether a block model learns through gates from the task, or by likelihood from the attention along its edges."""


def sampled_density(edges: EdgeList, gate: Float[Tensor, " n_edges"] | None = None) -> Float[Tensor, "batch heads"]:
    r"""Returns the share of real pairs that are edges, with a straight-through gradient.

    The value is $|M| / N$ for $N$ real pairs, or 0 if there are none. With the gate of
    :func:`~sbmt.block_model.model.straight_through_gate`, the $p$ of each sampled edge receives the gradient $1/N$. On
    average this is $p_{ij}$ times the exact gradient, so it vanishes as masks become sparse.

    Args:
        edges: The edges along which attention was computed.
        gate: ``(n_edges,)``, used only for its gradient, not for its value. None means no gradient.

    Paper: section 5.2, the term L_s.
    """
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges to be an EdgeList", type(edges).__name__, "convert a mask with EdgeList.from_dense")
    density = edges.density()
    if gate is None:
        return density
    if not isinstance(gate, Tensor) or gate.shape != edges.keys.shape or not gate.is_floating_point():
        raise SbmtError(f"a floating-point gate of shape ({edges.n_edges},)", describe(gate), "pass one per edge")
    counted = edges.mean_over_pairs(gate)
    return density.to(gate.dtype) + (counted - counted.detach())


def weigh_edges(
    edges: EdgeList, rate: Tensor, link: Link, law: Link, exploration: float, reach: int, reweight: bool | float = True
) -> tuple[Float[Tensor, " n_edges"], Float[Tensor, "batch heads"]]:
    r"""Returns the :func:`~sbmt.block_model.model.reweighting_bias` of drawn edges and an estimated mean probability.

    In the estimate, an edge of probability $p_{ij}$ that was drawn with probability $p^\delta_{ij}$ has the weight
    $p_{ij} / p^\delta_{ij}$, so value and gradient estimate :meth:`~sbmt.BlockModel.expected_density` without bias.

    ``rate`` excludes exploration, and ``link`` converts rates to $p$. Edges are drawn with exploration under the link
    ``law`` (see :func:`~sbmt.samplers.law_of`); keys at most ``reach`` positions away are certain to be drawn.
    """
    if link == law == "poisson" and not rate.requires_grad and operators.can_run_on(rate.device):
        rest = edges.shape[2], edges.offset if edges.causal else 0, reach, exploration, smallest_probability(reweight)
        bias, of_rows = operators.weigh_edges(rate, edges.row_ptr, edges.keys, *rest)
        return bias, share_of_pairs(of_rows.view(edges.shape[:3]).sum(2), edges.shape, *edges.masks)
    expected = probability(link, rate)
    drawn_with = expected.detach() if law == link and not exploration else probability(law, rate.detach() + exploration)
    drawn_with = drawn_with.masked_fill(edges.is_near(2 * reach), 1.0)
    share = expected / drawn_with.clamp(min=torch.finfo(rate.dtype).tiny)
    return reweighting_bias(drawn_with, reweight), edges.mean_over_pairs(share)


def density_penalty(outputs: Sequence[AttentionOutput], kind: DensityKind = "sampled") -> Float[Tensor, ""]:
    """Returns L_s, the mean density over examples, heads and layers; add ``density_weight`` times it to the task loss.

    Args:
        outputs: The attention outputs, one per layer.
        kind: ``"sampled"`` selects the paper's density, with a straight-through gradient, and ``"expected"`` the mean
            edge probability, with the exact gradient.
    """
    check_choice("kind", kind, DensityKind)
    if not isinstance(outputs, (list, tuple)) or not outputs or not all(hasattr(o, "density") for o in outputs):
        do = "pass the attention outputs of the encoder's layers"
        raise SbmtError("a non-empty list of attention outputs", describe(outputs), do)
    densities = [o.density if kind == "sampled" else o.expected_density for o in outputs]
    means = [d.mean(0).mean() if len(d) else d.sum() for d in densities]  # 0 for an empty batch
    return torch.stack(means).mean()


class _UnitGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, head_axis: int) -> Tensor:
        ctx.axes = [axis for axis in range(x.dim()) if axis != head_axis]
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        length = torch.linalg.vector_norm(grads[0], dim=ctx.axes, keepdim=True) if ctx.axes else grads[0].abs()
        return grads[0] / length.clamp(min=torch.finfo(length.dtype).tiny), None


def unit_gradient(x: Tensor, head_axis: int) -> Tensor:
    """Returns the tensor unchanged, but scales its gradient to norm 1 per head, which does not change the optimum.

    Rates are exponentials, so in rare steps the gradient of the fit is a thousand times as large as usual. After such a
    step, Adam would barely change the parameters for hundreds of steps.
    """
    return _UnitGradient.apply(x, head_axis)


def check_learning(learning: Learning, edges_per_query: float | None) -> None:
    """Raises SbmtError unless ``learning`` is a valid name and c is positive for likelihood and None otherwise."""
    check_choice("learning", learning, Learning)
    if learning == "likelihood":
        if edges_per_query is None or not is_number(edges_per_query) or not 0 < edges_per_query < float("inf"):
            raise SbmtError("edges_per_query > 0 for learning='likelihood'", describe(edges_per_query), "start with 16")
    elif edges_per_query is not None:
        raise SbmtError("edges_per_query only with learning='likelihood'", f"learning={learning!r}", "omit it")


def fit_loss(
    block_model: BlockModel,
    edges: EdgeList,
    rate: Float[Tensor, " n_edges"],
    weights: Float[Tensor, " n_edges"],
    edges_per_query: float,
    exploration: float,
    is_near: Bool[Tensor, " n_edges"] | None = None,
) -> Float[Tensor, ""]:
    r"""Returns the negative log-likelihood, up to a constant, of $c\, a_{ij}$ edges per pair under Poisson rates.

    $$\frac{1}{N} \sum_i \Big[\sum_j r_{ij} - c \sum_{j \in M_i} a_{ij} \ln(r_{ij} + \delta)\Big]$$

    N is the number of real queries of all examples and heads; the loss is 0 if there are none. The first sum runs
    over all keys and has a closed form; the second runs over the drawn edges, and estimates the sum over all keys if
    the attention was reweighted. At the optimum of a head's overall rate, the rates of a query sum on average to c
    times its attention to other tokens, so at most c edges per query are expected.

    Args:
        block_model: The block model to fit.
        edges: The edges along which attention was computed.
        rate: The rates of the edges without exploration, with gradients to the block model.
        weights: The attention weights of the edges, which are targets without gradients.
        edges_per_query: The target number c of edges per query.
        exploration: The exploration δ with which the edges were drawn.
        is_near: Which edges belong to a window and were not drawn; the second sum excludes them.

    Cost: O(n k + k² + edges). Not in the paper; based on Ball, Karrer and Newman (2011), who fit counts of edges.
    """
    targets = weights.detach().to(rate.dtype)
    targets = targets if is_near is None else targets.masked_fill(is_near, 0.0)
    gained = torch.xlogy(targets, (rate + exploration).clamp(min=torch.finfo(rate.dtype).tiny)).sum()
    loss = block_model.sum_of_rates().sum() - edges_per_query * gained
    return mean_over_queries(loss, edges.shape, edges.query_mask)


def mean_over_queries(total: Tensor, shape: Shape, query_mask: Tensor | None) -> Float[Tensor, ""]:
    """Divides ``total`` by the number of real queries of all examples and heads; returns 0 if there are none."""
    batch, heads, n_queries, _ = shape
    if query_mask is None:
        return total / (batch * heads * n_queries)
    return total / (heads * query_mask.sum()).clamp(min=1)


def auxiliary_loss(outputs: Any) -> Float[Tensor, ""]:
    """Returns the sum of the layers' auxiliary losses, which training adds to the task loss.

    Args:
        outputs: The output of a model or the attention outputs of its layers.
    """
    attention = [outputs] if isinstance(outputs, AttentionOutput) else getattr(outputs, "attention", outputs)
    if not isinstance(attention, Sequence) or not attention or not all(hasattr(o, "auxiliary_loss") for o in attention):
        raise SbmtError("the output of a model", type(outputs).__name__, "pass what the model returned")
    first, *rest = (output.auxiliary_loss for output in attention)
    return sum(rest, start=first)
