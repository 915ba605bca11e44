"""The inputs of an attention layer, and the optional terms of attention along edges, with their checks."""

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError, describe

GateRule = Literal["score", "weight"]
"""Whether a gate multiplies scores or weights. The weight of an edge with score s is proportional to exp(gate · s)
under ``"score"`` (equation 9), and to gate · exp(s) under ``"weight"`` (the released code)."""

Attended = tuple[Tensor, Tensor | None]
"""The values for all queries and, if requested, the weights of all edges after the softmax."""


class Heads(NamedTuple):
    """The inputs of an attention layer: tensors ``(batch, heads, n, d)``, and masks ``(batch, n)`` or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    query_mask: Any = None  # bool, True = real token
    key_mask: Any = None

    def attend(self, attention: nn.Module, **options: Any) -> Any:
        """Calls an attention layer with these inputs and returns its output."""
        return attention(*self[:3], query_mask=self.query_mask, key_mask=self.key_mask, **options)


class EdgeTerms(NamedTuple):
    """The optional terms in the equations of :func:`sbmt.edge_attention`, in addition to tokens and edges."""

    gate: Tensor | None = None  # (n_edges,), positive; None means ones
    gate_rule: GateRule = "score"
    bias: Tensor | None = None  # (n_edges,), added to scores; None means zeros
    sink: Tensor | None = None  # (heads,), a logit in every row's softmax that has no value; None means no sink
    weight_scale: Tensor | None = None  # (n_edges,), factors for dropout, applied after the softmax; None means ones
    return_weights: bool = False  # whether to return the weights after the softmax


def check_numbers(name: str, numbers: Tensor | None, n: int, device: torch.device) -> None:
    """Raises SbmtError unless ``numbers`` is None or contains n floating-point numbers on the device."""
    if numbers is None:
        return
    if not isinstance(numbers, Tensor) or numbers.shape != (n,) or not numbers.is_floating_point():
        owner = "head or target" if name == "sink" else "edge"
        raise SbmtError(f"a floating-point {name} of shape ({n},)", describe(numbers), f"pass one number per {owner}")
    if numbers.device != device:
        raise SbmtError(f"{name} on {device}, like the query", numbers.device, "move it with .to(…)")


def check_terms(terms: EdgeTerms, n_edges: int, n_sinks: int, device: torch.device) -> None:
    """Raises SbmtError unless all terms have the right length and keep the weights finite."""
    gate, _, bias, sink, scale, _ = terms
    for name, numbers in (("gate", gate), ("bias", bias), ("weight_scale", scale)):
        check_numbers(name, numbers, n_edges, device)
    check_numbers("sink", sink, n_sinks, device)
    if gate is not None and not bool((gate > 0).all()):
        raise SbmtError("a positive gate", f"a minimum of {float(gate.detach().min())}", "omit such edges")
    if bias is not None and not bool(bias.isfinite().all()):
        raise SbmtError("a finite bias", "NaN or infinity", "omit an edge instead of giving it a bias of −∞")
    if sink is not None and not bool((sink < math.inf).all()):
        raise SbmtError("sinks that are finite or −∞", sink.detach().tolist(), "use −∞ for a head without a sink")
