"""The oracle of all attention tests, which computes one row after the other, following the definition."""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from sbmt.graph.edges import EdgeList


def attend_row_by_row(query, key, value, mask, gate=None, gate_rule="score", scale=None, **more):
    """Returns the softmax over each row's edges. ``gate`` and ``scale`` are listed in the order of the rows."""
    return attend_and_weigh(query, key, value, mask, gate, gate_rule, scale, **more)[0]


def attend_and_weigh(query, key, value, mask, gate=None, gate_rule="score", scale=None, bias=None, sink=None):
    """Returns the values and unscaled weights, with a bias for each edge and a sink for each head."""
    out, everywhere, used = [], [query.new_empty(0)], 0
    for b, h, i in product(*(range(size) for size in query.shape[:3])):
        keys = [j for j in range(key.shape[2]) if mask[b, h, i, j]]
        if not keys:
            out.append(torch.zeros_like(value[b, h, 0]))
            continue
        here = slice(used, used := used + len(keys))
        scores = key[b, h, keys] @ query[b, h, i] / query.shape[-1] ** 0.5
        g = torch.ones_like(scores) if gate is None else gate[here]
        beta = torch.zeros_like(scores) if bias is None else bias[here]
        weights = (g * scores + beta).exp() if gate_rule == "score" else g * (scores + beta).exp()
        weights = weights / (weights.sum() + (0 if sink is None else sink[h].exp()))
        everywhere.append(weights)
        out.append((weights if scale is None else weights * scale[here]) @ value[b, h, keys])
    return torch.stack(out).view(*query.shape[:3], -1), torch.cat(everywhere)


@dataclass
class Case:
    """Inputs of an attention layer, which are float64 leaves, with some rows that have no edge."""

    query: Tensor
    key: Tensor
    value: Tensor
    gate: Tensor
    edges: EdgeList
    mask: Tensor

    @property
    def leaves(self) -> list[Tensor]:
        return [self.query, self.key, self.value, self.gate]


def make_case(batch, heads, n_queries, n_keys, d, d_value, density=0.4, seed=0, padded=False, skewed=False) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    mask = torch.rand(batch, heads, n_queries, n_keys, generator=generator) < density
    mask[:, :, -1] |= skewed  # the last query has every edge, more than all other queries together
    mask[:, :, 0] = False  # the first query never has an edge
    query_mask = key_mask = None
    if padded:
        query_mask, key_mask = (torch.arange(n) < max(1, n - 1) for n in (n_queries, n_keys))
        query_mask, key_mask = query_mask.repeat(batch, 1), key_mask.repeat(batch, 1)
        key_mask[0] = False  # the first example is all padding
        mask &= query_mask[:, None, :, None] & key_mask[:, None, None, :]
    gate = torch.rand(int(mask.sum()), generator=generator, dtype=torch.float64) * 2.8 + 0.2
    return Case(
        normal(batch, heads, n_queries, d),
        normal(batch, heads, n_keys, d),
        normal(batch, heads, n_keys, d_value),
        gate.requires_grad_(),
        EdgeList.from_dense(mask, query_mask, key_mask),
        mask,
    )
