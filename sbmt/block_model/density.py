"""Density of sampled masks, and the penalty that keeps it low."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.errors import SbmtError, check_choice
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import share_of_pairs
from sbmt.types import AttentionOutput

DensityKind = Literal["sampled", "expected"]


def sampled_density(edges: EdgeList, gate: Float[Tensor, " n_edges"] | None = None) -> Float[Tensor, "batch heads"]:
    r"""Share of real pairs that are edges, with a straight-through gradient.

    The value is $|M| / N$ for $N$ real pairs. With the gate of
    :func:`~sbmt.block_model.gate.straight_through_gate` each sampled edge's $p$ receives the gradient $1/N$. The
    expectation of that is $p_{ij}$ times the exact gradient, so it fades as masks get sparse.

    Args:
        edges: What was attended.
        gate: ``(n_edges,)``, whose gradient counts and whose value does not; None means no gradient.

    Returns:
        ``(batch, heads)`` in [0, 1]; 0 where there is no real pair.

    Paper: section 5.2, the term L_s.
    """
    if not isinstance(edges, EdgeList):
        raise SbmtError("edges as an EdgeList", type(edges).__name__, "convert a dense mask with EdgeList.from_dense")
    density = edges.density()
    if gate is None:
        return density
    if not isinstance(gate, Tensor) or gate.shape != edges.keys.shape or not gate.is_floating_point():
        got = f"{gate.dtype} {tuple(gate.shape)}" if isinstance(gate, Tensor) else type(gate).__name__
        raise SbmtError(f"a floating-point gate of shape ({edges.n_edges},)", got, "give one number per edge")
    n_edges = edges.row_ptr[:: edges.shape[2]].diff()
    counted: Tensor = _CountGates.apply(gate, density.to(gate.dtype), n_edges, edges.n_pairs)
    return counted


def estimated_density(
    edges: EdgeList, probability: Float[Tensor, " n_edges"], drawn_with: Float[Tensor, " n_edges"]
) -> Float[Tensor, "batch heads"]:
    r"""The mean edge probability without exploration, estimated from drawn edges: linear where the exact one is not.

    An edge of probability $p_{ij}$ that was drawn with probability $p^\delta_{ij}$ counts $p_{ij} / p^\delta_{ij}$, so
    that value and gradient are those of :meth:`BlockModel.expected_density` on average.

    Args:
        edges: The drawn edges, and all certain ones.
        probability: Their probabilities without exploration.
        drawn_with: Those with which they were drawn, 1 for certain edges. No gradient passes.
    """
    share = probability / drawn_with.detach().clamp(min=torch.finfo(probability.dtype).tiny)
    totals = torch.segment_reduce(share, "sum", offsets=edges.row_ptr[:: edges.shape[2]])
    return share_of_pairs(totals.view(edges.shape[:2]), edges.shape, edges.query_mask, edges.key_mask)


class _CountGates(torch.autograd.Function):
    """Counts the density exactly; in the backward pass every gate of a graph gets 1/N times the density's gradient."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, density: Tensor, n_edges: Tensor, n_pairs: Tensor) -> Tensor:
        ctx.save_for_backward(n_edges, n_pairs)
        ctx.n_gates = gate.numel()
        return density.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        n_edges, n_pairs = ctx.saved_tensors
        per_graph = (grads[0] / n_pairs.clamp(min=1)[:, None]).flatten()
        counts = n_edges.int()  # an index of half the size
        return per_graph.repeat_interleave(counts, output_size=ctx.n_gates), None, None, None


def density_penalty(outputs: Sequence[AttentionOutput], kind: DensityKind = "sampled") -> Float[Tensor, ""]:
    """L_s: the mean density over examples, then heads, then layers. Add ``density_weight`` times it to the loss.

    Args:
        outputs: One attention output per layer.
        kind: ``"sampled"`` is the paper's, with a straight-through gradient; ``"expected"`` is the closed form of the
            mean probability, with the exact gradient.

    Raises:
        SbmtError: If there is no output, or ``kind`` is unknown.
    """
    check_choice("kind", kind, DensityKind)
    if not isinstance(outputs, (list, tuple)) or not all(hasattr(o, "density") for o in outputs):
        raise SbmtError("attention outputs in a list", type(outputs).__name__, "pass those of the encoder's layers")
    if not outputs:
        raise SbmtError("at least one attention output", "none", "pass the outputs of the encoder's layers")
    densities = [o.density if kind == "sampled" else o.expected_density for o in outputs]
    return torch.stack([d.mean(0).mean() for d in densities]).mean()
