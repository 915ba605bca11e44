"""Attention as message passing on a bipartite graph, with PyTorch Geometric."""

from functools import cache
from typing import Any, Optional

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from sbmt.attention.inputs import Attended, EdgeTerms, GateRule, check_terms
from sbmt.errors import SbmtError, check_choice, describe
from sbmt.graph.edges import EdgeList
from sbmt.types import accumulator, check_floating

Pair = tuple[Tensor | None, Tensor | None]


class EdgeAttention(MessagePassing):
    r"""Scaled dot-product attention along the edges of any bipartite graph.

    $h_i = \sum_{j \in N(i)} \operatorname{softmax}_{j \in N(i)}(g_{ij}\, q_i k_j^\top / \sqrt d)\, v_j$ under
    ``gate_rule="score"``; under ``"weight"``, $\ln g_{ij}$ is added to the score instead. The layer has no parameters:
    sources, in row 0 of ``edge_index``, provide keys and values, and targets, in row 1, provide queries. The output of
    a target without neighbours is zero. Biases, sinks and weights are those of :func:`sbmt.edge_attention`. Nodes may
    be (source, target) pairs, which ``torch_geometric.nn.HeteroConv`` passes when it is called with dictionaries of
    queries, keys, values and edges.

    Args:
        gate_rule: Whether the gate multiplies the score (``"score"``) or the weight (``"weight"``).

    Cost: O(edges · d) time and memory, because messages are stored. Paper: equations 3, 4 and 9.

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
        query: Float[Tensor, "n_targets d"] | Pair,
        key: Float[Tensor, "n_sources d"] | Pair,
        value: Float[Tensor, "n_sources d_value"] | Pair,
        edge_index: Int[Tensor, "2 n_edges"],
        gate: Float[Tensor, " n_edges"] | None = None,
        weight_scale: Float[Tensor, " n_edges"] | None = None,
        bias: Float[Tensor, " n_edges"] | None = None,
        sink: Float[Tensor, " n_targets"] | None = None,
        *,
        return_weights: bool = False,
    ) -> Float[Tensor, "n_targets d_value"] | tuple[Float[Tensor, "n_targets d_value"], Float[Tensor, " n_edges"]]:
        """Returns the output of each target and, with ``return_weights``, the edges' weights after the softmax.

        ``weight_scale`` multiplies the weights after the softmax, as dropout does; for the other terms, see the class.
        """
        given: Any = (query, 1), (key, 0), (value, 0)
        queries, keys, values = (x[side] if isinstance(x, tuple) else x for x, side in given)
        terms = EdgeTerms(gate, self.gate_rule, bias, sink, weight_scale)
        check_graph(queries, keys, values, edge_index)
        check_terms(terms, edge_index.shape[1], queries.shape[0], queries.device)
        out, weights = self.pass_messages(queries, keys, values, edge_index, terms)
        return (out, weights) if return_weights else out

    def pass_messages(
        self, query: Tensor, key: Tensor, value: Tensor, edge_index: Tensor, terms: EdgeTerms
    ) -> tuple[Tensor, Tensor]:
        """Computes :meth:`forward` without its checks, and always returns the weights as well."""
        size = key.shape[0], query.shape[0]
        given = {"query": (None, query), "key": (key, None), "gate": terms.gate, "bias": terms.bias, "sink": terms.sink}
        weights: Tensor = self.edge_updater(edge_index, size=size, **given)
        scaled = weights if terms.weight_scale is None else weights * terms.weight_scale
        out: Tensor = self.propagate(edge_index, size=size, value=(value, None), weights=scaled)
        return out.to(value.dtype), weights

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
        """Computes the edges' weights, which sum to at most 1 for each target."""
        scores = (query_i / query_i.shape[-1] ** 0.5 * key_j).sum(-1)  # n_edges
        if gate is not None:
            scores = scores * gate if self.gate_rule == "score" else scores + gate.log()
        if bias is not None:
            scores = scores + bias
        if sink is None:
            return softmax(scores, index, num_nodes=size_i)
        sink = sink.clamp(min=torch.finfo(sink.dtype).min)  # −∞ would give NaN for targets without edges
        with_sinks = torch.cat([index, torch.arange(size_i, device=index.device)])  # one more edge per target
        return softmax(torch.cat([scores, sink]), with_sinks, num_nodes=size_i)[: len(index)]

    def message(self, value_j: Tensor, weights: Tensor) -> Tensor:
        """Computes the message of each edge, the weighted value of its source."""
        return weights[:, None] * value_j


def check_graph(query: Tensor, key: Tensor, value: Tensor, edge_index: Tensor) -> None:
    """Raises SbmtError unless the tensors describe the nodes and edges of a bipartite graph."""
    check_floating(query=query, key=key, value=value)
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 2:
        raise SbmtError("query, key and value of shape (nodes, width)", shapes, "use one row per node")
    if query.shape[1] != key.shape[1] or key.shape[0] != value.shape[0]:
        raise SbmtError("queries and keys of equal width and one value per key", shapes, "check the projections")
    do = "put sources in row 0 and targets in row 1"
    if not isinstance(edge_index, Tensor) or edge_index.dtype != torch.int64 or edge_index.shape[:-1] != (2,):
        raise SbmtError("edge_index to be an int64 tensor (2, n_edges)", describe(edge_index), do)
    for row, what, n in ((0, "sources", key.shape[0]), (1, "targets", query.shape[0])):
        if edge_index.shape[1] and not bool(((edge_index[row] >= 0) & (edge_index[row] < n)).all()):
            got = f"numbers from {int(edge_index[row].min())} to {int(edge_index[row].max())}"
            raise SbmtError(f"{what} in [0, {n})", got, do)


def attend_by_messages(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Computes :func:`sbmt.edge_attention` by :class:`EdgeAttention`, with all examples and heads in one graph."""
    if terms.sink is not None:
        terms = terms._replace(sink=terms.sink[:, None].expand(edges.shape[:3]).flatten())
    query, key, value = (t.flatten(0, 2) for t in (query, key, value))
    out, weights = _layer(terms.gate_rule).pass_messages(query, key, value, edges.to_edge_index(), terms)
    return out.unflatten(0, edges.shape[:3]), weights.to(accumulator(value)) if terms.return_weights else None


_layer = cache(EdgeAttention)  # stateless, and building it takes longer than attending to a short sequence
