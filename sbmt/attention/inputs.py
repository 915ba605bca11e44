"""What attention along edges takes besides tokens and edges."""

from typing import Literal, NamedTuple

from torch import Tensor

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
