"""What every attention requires of its arguments."""

from typing import Literal, NamedTuple

from torch import Tensor

from sbmt.errors import SbmtError, check_choice, describe, is_number
from sbmt.graph.edges import check_window
from sbmt.graph.padding import check_as_many_keys

GateRule = Literal["score", "weight"]
"""What a gate multiplies. ``"score"``: weight ∝ exp(gate · s), equation 9. ``"weight"``: weight ∝ gate · exp(s), as in
the released code."""


class EdgeTerms(NamedTuple):
    """What enters attention besides tokens and edges; all that is per edge stands in EdgeList order.

    The equations are those of :func:`sbmt.edge_attention`.
    """

    gate: Tensor | None = None  # (n_edges,), positive; None for ones
    gate_rule: GateRule = "score"
    bias: Tensor | None = None  # (n_edges,), added to scores; None for zeros
    sink: Tensor | None = None  # (heads,), a logit without a value in every row; None for no such logit
    weight_scale: Tensor | None = None  # (n_edges,), dropout's factors, applied after the softmax; None for ones
    return_weights: bool = False  # whether the weights after the softmax are wanted


def check_attention_inputs(query: Tensor, key: Tensor, value: Tensor, window: int | None = None) -> None:
    """Raises SbmtError unless query, key and value are floating-point tensors whose shapes fit an attention.

    A window also needs as many queries as keys.
    """
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise SbmtError(f"{name} as a floating-point tensor", got, "embed integer features first")
        if tensor.dim() != 4 or 0 in tensor.shape:
            do = "leave empty sequences out and add the missing dimensions"
            raise SbmtError(f"{name} of shape (batch, heads, n, d), none of them 0", tuple(tensor.shape), do)
    if not query.device == key.device == value.device:
        devices = f"{query.device}, {key.device} and {value.device}"
        raise SbmtError("query, key and value on one device", devices, "move them with .to(…)")
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.shape[:2] == key.shape[:2] == value.shape[:2]:
        raise SbmtError("one batch size and one head count", shapes, "expand what is shared")
    if query.shape[3] != key.shape[3] or key.shape[2] != value.shape[2]:
        raise SbmtError("as many values as keys, and keys as wide as queries", shapes, "check the projections")
    if window is not None:
        check_as_many_keys((*query.shape[:3], key.shape[2]))


def check_sink(sink: Tensor, query: Tensor) -> None:
    """Raises SbmtError unless there is a logit for each head of the query."""
    n_heads = query.shape[1]
    if not isinstance(sink, Tensor) or sink.shape != (n_heads,) or not sink.is_floating_point():
        raise SbmtError(f"a floating-point sink of shape ({n_heads},)", describe(sink), "give one number per head")
    if sink.device != query.device:
        raise SbmtError(f"sink on {query.device}, as the query", sink.device, "move it with .to(…)")


def check_attention_settings(gate_rule: GateRule, window: int | None, dropout: float) -> None:
    """Raises SbmtError unless the gate rule is known, the window an integer ≥ 0 or None, and 0 ≤ dropout < 1."""
    check_choice("gate_rule", gate_rule, GateRule)
    if window is not None:
        check_window(window)
    check_dropout(dropout)


def check_dropout(dropout: float) -> None:
    """Raises SbmtError unless 0 ≤ dropout < 1."""
    if not is_number(dropout) or not 0 <= dropout < 1:
        raise SbmtError("dropout in [0, 1)", describe(dropout), "0 switches it off")
