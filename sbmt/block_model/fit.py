"""What drawn edges tell of a block model: the density and its price, reweighting, and the fit by likelihood."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sbmt.block_model.model import BlockModel, Link, probability, reweighting_bias
from sbmt.errors import SbmtError, check_choice, describe, is_number
from sbmt.graph.edges import EdgeList
from sbmt.types import AttentionOutput

DensityKind = Literal["sampled", "expected"]
Learning = Literal["straight_through", "likelihood"]
"""What teaches a block model: the task, through gates, or the attention that its edges were given."""


def sampled_density(edges: EdgeList, gate: Float[Tensor, " n_edges"] | None = None) -> Float[Tensor, "batch heads"]:
    r"""Share of real pairs that are edges, with a straight-through gradient.

    The value is $|M| / N$ for $N$ real pairs, 0 where there are none. With the gate of
    :func:`~sbmt.block_model.model.straight_through_gate` each sampled edge's $p$ receives the gradient $1/N$. The
    expectation of that is $p_{ij}$ times the exact gradient, so it fades as masks get sparse.

    Args:
        edges: What was attended.
        gate: ``(n_edges,)``, whose gradient counts and whose value does not; None means no gradient.

    Paper: section 5.2, the term L_s.
    """
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges as an EdgeList", type(edges).__name__, "convert a dense mask with EdgeList.from_dense")
    density = edges.density()
    if gate is None:
        return density
    if not isinstance(gate, Tensor) or gate.shape != edges.keys.shape or not gate.is_floating_point():
        expected = f"a floating-point gate of shape ({edges.n_edges},)"
        raise SbmtError(expected, describe(gate), "give one number per edge")
    counted = edges.mean_over_pairs(gate)
    return density.to(gate.dtype) + (counted - counted.detach())


def weigh_edges(
    edges: EdgeList,
    rate: Float[Tensor, " n_edges"],
    link: Link,
    law: Link,
    exploration: float,
    is_certain: Tensor | None,
) -> tuple[Float[Tensor, " n_edges"], Float[Tensor, "batch heads"]]:
    r"""The :func:`~sbmt.block_model.model.reweighting_bias` of drawn edges, and an estimated mean edge probability.

    An edge of probability $p_{ij}$ that was drawn with probability $p^\delta_{ij}$ counts $p_{ij} / p^\delta_{ij}$, so
    that on average value and gradient of the estimate are those of :meth:`~sbmt.BlockModel.expected_density`.

    ``rate`` is without exploration, and ``link`` makes probabilities of rates, but edges were drawn by those of ``law``
    (see :func:`~sbmt.samplers.law_of`) with exploration. Certain edges would be there whatever was drawn.
    """
    expected = probability(link, rate)
    drawn_with = expected.detach() if law == link and not exploration else probability(law, rate.detach() + exploration)
    if is_certain is not None:
        drawn_with = drawn_with.masked_fill(is_certain, 1.0)
    share = expected / drawn_with.clamp(min=torch.finfo(rate.dtype).tiny)
    return reweighting_bias(drawn_with), edges.mean_over_pairs(share)


def density_penalty(outputs: Sequence[AttentionOutput], kind: DensityKind = "sampled") -> Float[Tensor, ""]:
    """L_s: the mean density over examples, then heads, then layers. Add ``density_weight`` times it to the loss.

    Args:
        outputs: One attention output per layer.
        kind: ``"sampled"`` is the paper's, with a straight-through gradient; ``"expected"`` is the closed form of the
            mean probability, with the exact gradient.
    """
    check_choice("kind", kind, DensityKind)
    if not isinstance(outputs, (list, tuple)) or not outputs or not all(hasattr(o, "density") for o in outputs):
        do = "pass those of the encoder's layers"
        raise SbmtError("at least one attention output in a list", describe(outputs), do)
    densities = [o.density if kind == "sampled" else o.expected_density for o in outputs]
    return torch.stack([d.mean(0).mean() for d in densities]).mean()


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
    """The tensor itself, whose gradient is scaled to length 1 for each head.

    Rates are exponentials, so in rare steps the gradient of the fit grows by a factor of a thousand, after which Adam
    would stand still for hundreds of steps. The direction stays, and so does the optimum.
    """
    return _UnitGradient.apply(x, head_axis)


def check_learning(learning: Learning, edges_per_query: float | None) -> None:
    """Raises SbmtError unless the name is known, and c > 0 is given where and only where it is needed."""
    check_choice("learning", learning, Learning)
    if learning == "likelihood":
        if edges_per_query is None or not is_number(edges_per_query) or not 0 < edges_per_query < float("inf"):
            got = describe(edges_per_query)
            raise SbmtError("edges_per_query > 0 with learning='likelihood'", got, "16 is a start")
    elif edges_per_query is not None:
        raise SbmtError("edges_per_query with learning='likelihood'", f"learning={learning!r}", "leave it out")


def fit_loss(
    block_model: BlockModel,
    edges: EdgeList,
    rate: Float[Tensor, " n_edges"],
    weights: Float[Tensor, " n_edges"],
    edges_per_query: float,
    exploration: float,
    is_near: Bool[Tensor, " n_edges"] | None = None,
) -> Float[Tensor, ""]:
    r"""The negative log-likelihood of a Poisson graph that has $c\, a_{ij}$ edges between i and j, up to a constant.

    $$\frac{1}{N} \sum_i \Big[\sum_j r_{ij} - c \sum_{j \in M_i} a_{ij} \ln(r_{ij} + \delta)\Big]$$

    over the N real queries of all examples and heads; 0 where there are none. The first sum runs over all keys and has
    a closed form; the second runs over the drawn edges, and estimates that over all keys if the attention was
    reweighted. Where a head's overall rate is optimal, the rates of a query sum on average to c times the attention
    that it gives away, so that at most c edges per query are expected.

    Args:
        block_model: What is fitted.
        edges: The edges that were attended.
        rate: Their rates without exploration, by whose gradient the block model learns.
        weights: Their attention, as targets; no gradient passes.
        edges_per_query: c.
        exploration: δ with which the edges were drawn.
        is_near: Edges of a window, which were not drawn. No rate has to explain them: the second sum leaves them out.

    Cost: O(n k + k² + edges). Not in the paper; after Ball, Karrer and Newman (2011), with attention for counted edges.
    """
    targets = weights.detach().to(rate.dtype)
    targets = targets if is_near is None else targets.masked_fill(is_near, 0.0)
    gained = torch.xlogy(targets, (rate + exploration).clamp(min=torch.finfo(rate.dtype).tiny)).sum()
    loss = block_model.sum_of_rates().sum() - edges_per_query * gained
    batch, heads, n_queries, _ = edges.shape
    if edges.query_mask is None:
        return loss / (batch * heads * n_queries)
    return loss / (heads * edges.query_mask.sum()).clamp(min=1)


def auxiliary_loss(outputs: Any) -> Float[Tensor, ""]:
    """The sum of the layers' auxiliary losses, to be added to the loss of the task.

    Args:
        outputs: What a model returned, or the attention outputs of its layers.

    Example:
        >>> import sbmt
        >>> attention = sbmt.build_attention("sbm", preset="fitted", d_head=8, n_heads=2, n_clusters=8)
        >>> x = torch.randn(1, 2, 5, 8)
        >>> bool(auxiliary_loss([attention(x, x, x)]) != 0)
        True
    """
    attention = [outputs] if isinstance(outputs, AttentionOutput) else getattr(outputs, "attention", outputs)
    if not isinstance(attention, Sequence) or not attention or not all(hasattr(o, "auxiliary_loss") for o in attention):
        raise SbmtError("the output of a model", type(outputs).__name__, "pass what its forward returned")
    first, *rest = (output.auxiliary_loss for output in attention)
    return sum(rest, start=first)
