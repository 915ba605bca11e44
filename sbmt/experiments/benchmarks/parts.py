"""The training step broken down into its parts."""

from collections.abc import Callable

import torch
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.block_model.model import edge_dot, straight_through_gate
from sbmt.experiments.benchmarks.cases import Case
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, OURS, entry
from sbmt.experiments.benchmarks.timing import Entry, Pace, Summary, race
from sbmt.samplers import sample_edges

WHOLE = "whole step"
PARTS = ("memberships", "sampling", "attention forward", "attention backward", "gate backward")


def take_apart(case: Case, pace: Pace) -> dict[str, Summary]:
    """Times the training step and each of its parts in turn; ratios are shares of the whole step.

    - ``memberships``: the block model and its rate factors T = Q̂ S and K̂, forward, and backward to tokens and
      parameters;
    - ``sampling``: from the factors to the edges;
    - ``attention forward`` and ``attention backward`` along the edges, the latter to query, key, value and gate;
    - ``gate backward``: from the edges' gradients to those of the factors.
    """
    model = case.block_model()
    query_rates, key_rates = (t.detach().requires_grad_() for t in model.rate_factors())
    edges = sample_edges(model)
    query, key, value = (t.detach().requires_grad_() for t in (case.query, case.key, case.value))
    gate_cotangent = torch.randn(edges.n_edges, generator=torch.Generator().manual_seed(0))
    factor_cotangents = [torch.randn_like(t) for t in (query_rates, key_rates)]
    learned = [leaf for leaf in case.leaves if leaf is not case.value]
    gate_leaf = torch.ones(edges.n_edges, requires_grad=True)

    def memberships(_: object) -> tuple[Tensor, ...]:
        return torch.autograd.grad(list(case.block_model().rate_factors()), learned, factor_cotangents)

    def attention() -> Tensor:
        return edge_attention(query, key, value, edges, gate_leaf)

    def gate() -> Tensor:
        return straight_through_gate(edge_dot(query_rates, key_rates, edges))

    parts: dict[str, Entry] = {
        WHOLE: entry(CONTESTANTS[OURS], case, is_training=True),
        "memberships": Entry(memberships),
        "sampling": Entry(lambda _: sample_edges(model)),
        "attention forward": Entry(torch.no_grad()(lambda _: attention())),
        "attention backward": _backward(attention, [query, key, value, gate_leaf], case.cotangent),
        "gate backward": _backward(gate, [query_rates, key_rates], gate_cotangent),
    }
    return race(parts, pace, reference=WHOLE)


def _backward(forward: Callable[[], Tensor], leaves: list[Tensor], cotangent: Tensor) -> Entry:
    return Entry(lambda out: torch.autograd.grad(out, leaves, cotangent), forward)
