"""Attention as message passing on a bipartite graph, with PyTorch Geometric."""

from functools import cache
from typing import Any, Optional

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from sbmt.attention.inputs import EdgeTerms, GateRule
from sbmt.errors import SbmtError, check_choice, describe
from sbmt.graph.edges import EdgeList
from sbmt.types import accumulator


class EdgeAttention(MessagePassing):
    r"""Scaled dot-product attention along the edges of any bipartite graph.

    $h_i = \sum_{j \in N(i)} \operatorname{softmax}_{j \in N(i)}(g_{ij}\, q_i k_j^\top / \sqrt d)\, v_j$ under
    ``gate_rule="score"``; under ``"weight"``, $\ln g_{ij}$ is added to the score instead. The layer has no parameters:
    sources provide keys and values, targets provide queries. A target without neighbours gets zeros. Biases, sinks and
    weights are those of :func:`sbmt.edge_attention`.

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
        bias: Float[Tensor, " n_edges"] | None = None,
        sink: Float[Tensor, " n_targets"] | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "n_targets d_value"] | tuple[Float[Tensor, "n_targets d_value"], Float[Tensor, " n_edges"]]:
        """Passes messages from sources to targets, and returns what each target receives.

        ``gate`` holds a positive number per edge, and ``weight_scale`` multiplies the edges' weights after the softmax,
        as dropout does; None means ones. ``bias`` is added to the edges' scores. ``sink`` adds a term to each target's
        denominator, its exponential. With ``return_weights`` the weights after the softmax are returned too.

        Raises:
            SbmtError: On tensors whose types or shapes do not fit, edges between nodes that are not there, or a gate
                that is not positive.
        """
        check_nodes(query, key, value, edge_index)
        n_edges = edge_index.shape[1]
        for name, numbers, n in (("gate", gate, n_edges), ("weight_scale", weight_scale, n_edges),
                                 ("bias", bias, n_edges), ("sink", sink, query.shape[0])):  # fmt: skip
            is_fit = isinstance(numbers, Tensor) and numbers.shape == (n,) and numbers.is_floating_point()
            if numbers is not None and not is_fit:
                expected = f"a floating-point {name} of shape ({n},)"
                raise SbmtError(expected, describe(numbers), "give one number per edge, or target")
        if gate is not None and not bool((gate > 0).all()):
            raise SbmtError("a positive gate", f"a minimum of {float(gate.min())}", "leave the edge out")
        return self.pass_messages(
            query, key, value, edge_index, gate, weight_scale, bias, sink, return_weights=return_weights
        )

    def pass_messages(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        edge_index: Tensor,
        gate: Tensor | None,
        weight_scale: Tensor | None,
        bias: Tensor | None,
        sink: Tensor | None,
        *,
        return_weights: bool,
    ) -> Any:
        """:meth:`forward` without its checks."""
        size = (key.shape[0], query.shape[0])
        ends = {"query": (None, query), "key": (key, None)}
        weights = self.edge_updater(edge_index, size=size, **ends, gate=gate, bias=bias, sink=sink)
        scaled = weights if weight_scale is None else weights * weight_scale
        out: Tensor = self.propagate(edge_index, size=size, value=(value, None), weights=scaled)
        return (out.to(value.dtype), weights) if return_weights else out.to(value.dtype)

    def edge_update(
        self,
        query_i: Tensor,
        key_j: Tensor,
        gate: Optional[Tensor],  # noqa: UP045 - PyTorch Geometric cannot read ``Tensor | None`` here
        bias: Optional[Tensor],  # noqa: UP045
        sink: Optional[Tensor],  # noqa: UP045
        index: Tensor,
        size_i: int,
    ) -> Tensor:
        """The weight of each edge, which sum to at most 1 over those of a target."""
        scores = (query_i / query_i.shape[-1] ** 0.5 * key_j).sum(-1)  # n_edges
        if gate is not None:
            scores = scores * gate if self.gate_rule == "score" else scores + gate.log()
        if bias is not None:
            scores = scores + bias
        if sink is None:
            return softmax(scores, index, num_nodes=size_i)
        sink = sink.clamp(min=torch.finfo(sink.dtype).min)  # −∞ by itself would make NaN where there are no edges
        with_sinks = torch.cat([index, torch.arange(size_i, device=index.device)])  # one more edge of each target
        return softmax(torch.cat([scores, sink]), with_sinks, num_nodes=size_i)[: len(index)]

    def message(self, value_j: Tensor, weights: Tensor) -> Tensor:
        """What each edge carries: the weighted value of its source."""
        return weights[:, None] * value_j


def check_nodes(query: Tensor, key: Tensor, value: Tensor, edge_index: Tensor) -> None:
    """Raises SbmtError unless these are nodes of a bipartite graph and its edges."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() != 2:
            expected = f"{name} as a floating-point tensor (nodes, width)"
            raise SbmtError(expected, describe(x), "give one row per node")
    if query.shape[1] != key.shape[1] or key.shape[0] != value.shape[0]:
        shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
        raise SbmtError("as many values as keys, and keys as wide as queries", shapes, "check the projections")
    if not isinstance(edge_index, Tensor) or edge_index.dtype != torch.int64 or edge_index.shape[:-1] != (2,):
        do = "row 0 holds sources, row 1 targets"
        raise SbmtError("edge_index as an int64 tensor (2, n_edges)", describe(edge_index), do)
    for row, what, n in ((0, "sources", key.shape[0]), (1, "targets", query.shape[0])):
        if edge_index.shape[1] and not bool(((edge_index[row] >= 0) & (edge_index[row] < n)).all()):
            got = f"from {int(edge_index[row].min())} to {int(edge_index[row].max())}"
            raise SbmtError(f"{what} in [0, {n})", got, "row 0 holds sources, row 1 targets")


def attend_by_messages(
    query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms
) -> tuple[Tensor, Tensor | None]:
    """:class:`EdgeAttention` over all examples and heads as one graph; see :func:`sbmt.edge_attention`."""
    gate, gate_rule, bias, sink, weight_scale, return_weights = terms
    if sink is not None:
        sink = sink[:, None].expand(edges.shape[:3]).flatten()
    query, key, value = (t.flatten(0, 2) for t in (query, key, value))
    layer, index = _layer(gate_rule), edges.to_edge_index()
    out, weights = layer.pass_messages(query, key, value, index, gate, weight_scale, bias, sink, return_weights=True)
    return out.unflatten(0, edges.shape[:3]), weights.to(accumulator(value)) if return_weights else None


_layer = cache(EdgeAttention)  # it has no state, and building one takes longer than attention in a short sequence
