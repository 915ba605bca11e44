"""Attention for GPUs in plain PyTorch with static shapes: each row gets as many slots as the longest row has edges."""

import torch
from torch import Tensor

from sbmt.attention.inputs import Attended, EdgeTerms
from sbmt.graph.edges import EdgeList
from sbmt.types import accumulator

MOST_PADDING = 8  # slots per edge; with more slots, message passing takes less memory


def attend_by_messages(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Attends by message passing; imports PyTorch Geometric only here, since that takes longer than importing torch."""
    from sbmt.attention import message_passing

    return message_passing.attend_by_messages(query, key, value, edges, terms)


def attend_in_slots(query: Tensor, key: Tensor, value: Tensor, edges: EdgeList, terms: EdgeTerms) -> Attended:
    """Computes :func:`sbmt.edge_attention` by a masked softmax over the slots of each row.

    Cost: O(n · c · d) time and memory for c edges in the longest row, and one device synchronisation.
    """
    degrees = edges.degrees()
    n_slots = max(1, int(degrees.max()))
    if n_slots * degrees.numel() > MOST_PADDING * (edges.n_edges + degrees.numel()):
        return attend_by_messages(query, key, value, edges, terms)
    is_edge = torch.arange(n_slots, device=query.device) < degrees[:, None]  # rows slots

    def in_slots(per_edge: Tensor) -> Tensor:
        return per_edge.new_zeros(is_edge.shape).masked_scatter(is_edge, per_edge)

    keys = in_slots(edges.key_rows())
    dtype = torch.promote_types(query.dtype, key.dtype)
    scaled = (query.to(dtype) / query.shape[-1] ** 0.5).flatten(0, 2)
    scores = (key.to(dtype).flatten(0, 2)[keys] @ scaled[..., None]).squeeze(-1).to(accumulator(value))  # rows slots
    if terms.gate is not None:
        gate = in_slots(terms.gate.to(scores.dtype)).masked_fill(~is_edge, 1.0)
        scores = scores * gate if terms.gate_rule == "score" else scores + gate.log()
    if terms.bias is not None:
        scores = scores + in_slots(terms.bias.to(scores.dtype))
    scores = scores.masked_fill(~is_edge, -torch.inf).masked_fill(degrees[:, None] == 0, 0.0)
    if terms.sink is not None:
        sink = terms.sink[:, None].expand(edges.shape[:3]).reshape(-1, 1).to(scores.dtype)
        scores = torch.cat([scores, sink], -1)
    weights = scores.softmax(-1)[:, :n_slots] * is_edge
    per_edge = weights[is_edge] if terms.return_weights else None
    if terms.weight_scale is not None:
        weights = weights * in_slots(terms.weight_scale.to(weights.dtype))
    out = (weights[:, None].to(value.dtype) @ value.flatten(0, 2)[keys]).squeeze(1)
    return out.unflatten(0, edges.shape[:3]), per_edge
