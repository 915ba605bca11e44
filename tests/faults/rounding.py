"""Attention in float64, and how far rounding may lead other types away from it, number by number."""

import torch

from sbmt import edge_attention
from sbmt.graph.masks import zero_padding
from tests.faults.cases import gradients


class Exact:
    """What attention gives in float64 for the same inputs, and how far from it rounding may lead.

    Args:
        tensors: Query, key and value of all examples.
        gate: One number per edge.
        edges: The mask.
        incoming: The gradient of the output.
        dropout: As in :func:`sbmt.edge_attention`.
        generator: For dropout.
        gate_rule: What the gate multiplies.

    Attributes:
        results: The output, and the gradients of query, key, value and gate.
    """

    def __init__(self, tensors, gate, edges, incoming, *, dropout, generator, gate_rule):
        leaves = [x.detach().double().requires_grad_() for x in (*tensors, gate)]
        settings = {"backend": "dense", "gate_rule": gate_rule}
        out = edge_attention(*leaves[:3], edges, leaves[3], dropout=dropout, generator=generator, **settings)
        self.results = [out.detach(), *gradients((out * incoming.double()).sum(), leaves)]
        unit = torch.eye(edges.shape[3], dtype=torch.float64).expand(*edges.shape[:2], -1, -1)
        self._weights = edge_attention(*leaves[:2], unit, edges, leaves[3], **settings).detach()
        self._mask, self._keep, self._is_score_rule = edges.to_dense(), 1 - dropout, gate_rule == "score"
        self._gate, self._incoming = torch.ones_like(self._weights), incoming.double().abs()
        self._gate[self._mask] = leaves[3].detach()
        masks = edges.query_mask, edges.key_mask, edges.key_mask
        self._tokens = [zero_padding(x.detach().abs(), m) for x, m in zip(leaves, masks, strict=False)]

    def is_in_range(self, dtype):
        """Whether nothing on the way to the output can overflow, and whether nothing on the way to gradients can."""
        tiny, limit = torch.finfo(dtype).tiny, torch.finfo(dtype).max / 4
        query, key, value = self._tokens
        out, *others = self._sums(tiny, torch.tensor(2.0))  # whatever the weights are
        exponent = self._scores(tiny)[1] * self._mask  # of a gate's type, which has room for as much as float32
        is_scored = float(exponent.max()) < max(limit, torch.finfo(torch.float32).max / 4)
        forward = is_scored and all(float(x.max()) < limit for x in (query @ key.mT, value / self._keep, out))
        return forward, forward and all(float(x.max()) < limit for x in others if x.numel())

    def margins(self, dtype):
        """Bounds of the errors of results if all operations round to a type, float64 standing for the exact ones.

        An operation returns its exact result times 1 ± u, or ± u · tiny where that is below the least normal number
        (Higham, *Accuracy and Stability of Numerical Algorithms*, §2). All results are sums of products, so that after
        K operations they are off by at most (1 + u)^K − 1 of the same sums of absolute values (§3).
        """
        tiny = max(torch.finfo(dtype).tiny, 1e-290)  # of which sums in float64 still have all digits
        u = (torch.finfo(dtype).eps + torch.finfo(torch.float64).eps) / 2
        d, d_value = self._tokens[0].shape[3], self._tokens[2].shape[3]
        # Weights, their slopes' mean, the slopes and the sums over edges each add up a row or a column; gradients of
        # weights add up d_value products; the rest is a few operations.
        n_operations = 4 * max(int(self._mask.sum(axis).max()) for axis in (-1, -2)) + d_value + 20
        # Of a score, d products, scaling, the gate and what is subtracted stand in an exponent, in both parts of a
        # fraction, and a slope has two weights.
        exponent = (self._scores(tiny)[1] * self._mask).amax(-1, keepdim=True)
        error = torch.expm1(u * (n_operations + 4 * (d + 6) * exponent))
        return [x + u * n_operations * tiny for x in self._sums(tiny, error)[:5]]

    def _scores(self, tiny):
        """Absolute values behind scores, and behind the exponents that gates make of them."""
        query, key, _ = self._tokens
        score = query @ key.mT / query.shape[3] ** 0.5 + tiny
        return score, score * self._gate if self._is_score_rule else score + self._gate.log().abs()

    def _sums(self, tiny, error):
        """Absolute values behind results, and behind the gradients of weights and scores, times a relative error.

        Where the error exceeds 1, all that is known of weights is that they lie in [0, 1]. A weight below the least
        normal number may be 0 instead.
        """
        query, key, value = self._tokens
        weights = torch.where(error > 1, 1.0, self._weights + tiny) * self._mask
        errors = weights * error.clamp(max=2) + tiny * self._mask
        to_weight = self._incoming @ value.mT / self._keep + tiny
        slope = errors * (to_weight + (weights * to_weight).sum(-1, keepdim=True) + tiny)
        to_gate = slope * (self._scores(tiny)[0] + tiny / self._gate) if self._is_score_rule else slope / self._gate
        to_score = slope * self._gate if self._is_score_rule else slope
        to_product = to_score / query.shape[3] ** 0.5 + tiny * errors
        to_tokens = to_product @ key, to_product.mT @ query, errors.mT @ self._incoming / self._keep
        return [errors @ value / self._keep, *to_tokens, to_gate[self._mask], to_weight, to_score]
