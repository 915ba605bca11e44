"""Attention as message passing on a bipartite graph, with PyTorch Geometric."""

from functools import cache
from typing import Optional

from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from sbmt.attention.inputs import GateRule
from sbmt.errors import check_choice
from sbmt.graph.edges import EdgeList


class EdgeAttention(MessagePassing):
    r"""Scaled dot-product attention along the edges of any bipartite graph.

    $h_i = \sum_{j \in N(i)} \operatorname{softmax}_{j \in N(i)}(g_{ij}\, q_i k_j^\top / \sqrt d)\, v_j$ under
    ``gate_rule="score"``; under ``"weight"``, $\ln g_{ij}$ is added to the score instead. The layer has no parameters:
    sources provide keys and values, targets provide queries. A target without neighbours gets zeros.

    Shapes:
        query ``(n_targets, d)``, key ``(n_sources, d)``, value ``(n_sources, d_value)``, edge_index ``(2, n_edges)``
        with sources in row 0 → ``(n_targets, d_value)``.

    Args:
        gate_rule: ``"score"`` or ``"weight"``.

    Raises:
        SbmtError: If the gate rule is unknown.

    Cost: O(edges · d) time and memory: messages are materialised.

    Paper: equations 3, 4 and 9.

    Example:
        >>> import torch
        >>> layer = EdgeAttention()
        >>> nodes = torch.eye(3)
        >>> layer(nodes, nodes, nodes, torch.tensor([[0, 1], [2, 2]])).round(decimals=2).tolist()[2]
        [0.5, 0.5, 0.0]
    """

    def __init__(self, gate_rule: GateRule = "score") -> None:
        super().__init__(aggr="add", node_dim=0)
        check_choice("gate_rule", gate_rule, GateRule)
        self.gate_rule = gate_rule

    def forward(
        self,
        query: Float[Tensor, "n_targets d"],
        key: Float[Tensor, "n_sources d"],
        value: Float[Tensor, "n_sources d_value"],
        edge_index: Int[Tensor, "2 n_edges"],
        gate: Float[Tensor, " n_edges"] | None = None,
        weight_scale: Float[Tensor, " n_edges"] | None = None,
    ) -> Float[Tensor, "n_targets d_value"]:
        """Passes messages from sources to targets.

        ``gate`` holds a positive number per edge, and ``weight_scale`` multiplies the edges' weights after the softmax,
        as dropout does; None means ones.
        """
        nodes = {"query": (None, query), "key": (key, None), "value": (value, None)}
        size = (key.shape[0], query.shape[0])
        out: Tensor = self.propagate(edge_index, size=size, **nodes, gate=gate, weight_scale=weight_scale)
        return out.to(value.dtype)

    def message(
        self,
        query_i: Tensor,
        key_j: Tensor,
        value_j: Tensor,
        gate: Optional[Tensor],  # noqa: UP045 - PyTorch Geometric cannot read ``Tensor | None`` here
        weight_scale: Optional[Tensor],  # noqa: UP045
        index: Tensor,
        size_i: int,
    ) -> Tensor:
        """What each edge carries: the weighted value of its source."""
        scores = (query_i * key_j).sum(-1) / query_i.shape[-1] ** 0.5  # n_edges
        if gate is not None:
            scores = scores * gate if self.gate_rule == "score" else scores + gate.log()
        weights = softmax(scores, index, num_nodes=size_i)
        if weight_scale is not None:
            weights = weights * weight_scale
        return weights[:, None] * value_j


def attend_by_messages(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    edges: EdgeList,
    gate: Tensor | None,
    gate_rule: GateRule,
    weight_scale: Tensor | None,
) -> Tensor:
    """:class:`EdgeAttention` over all examples and heads as one graph; see :func:`sbmt.edge_attention`."""
    nodes = (t.flatten(0, 2) for t in (query, key, value))
    out: Tensor = _layer(gate_rule)(*nodes, edges.to_edge_index(), gate, weight_scale)
    return out.unflatten(0, edges.shape[:3])


_layer = cache(EdgeAttention)  # it has no state, and building one takes longer than attention in a short sequence
