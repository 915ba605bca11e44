"""An attention mechanism written from scratch, and copies that are wrong in one way each."""

import torch
from torch import nn

from sbmt.attention.dispatch import check_attention_inputs
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import check_mask
from sbmt.types import AttentionOutput


class Honest(nn.Module):
    """Softmax over a random half of the pairs, or all of them, in replaceable steps, as a learner might write it."""

    def __init__(self, is_random=True):
        super().__init__()
        self.is_random = is_random

    def forward(self, query, key, value, *, query_mask=None, key_mask=None, generator=None, return_edges=False):
        self.check(query, key, value)
        is_query, is_key = (
            torch.ones(x.shape[0], x.shape[2], dtype=torch.bool)
            if mask is None
            else check_mask("a mask", mask, *x.shape[::2])
            for x, mask in ((query, query_mask), (key, key_mask))
        )
        is_pair = (is_query[:, :, None] & is_key[:, None])[:, None].expand(-1, query.shape[1], -1, -1)
        mask = self.draw(query, is_pair, generator) if self.is_random else is_pair
        values = self.mix(self.weights(query @ key.mT / query.shape[3] ** 0.5, mask), value)
        density, expected = self.densities(mask, is_pair)
        edges = EdgeList.from_dense(mask) if return_edges else None
        return AttentionOutput(values, density, expected, edges)

    def check(self, query, key, value):
        check_attention_inputs(query, key, value)

    def draw(self, query, is_pair, generator):
        return is_pair & (torch.rand(is_pair.shape, generator=generator) < 0.5)

    def weights(self, scores, mask):
        empty = ~mask.any(-1, keepdim=True)
        return scores.masked_fill(~mask & ~empty, -torch.inf).softmax(-1).masked_fill(empty, 0.0)

    def mix(self, weights, value):
        return weights @ value

    def densities(self, mask, is_pair):
        n_pairs = is_pair.sum((2, 3)).clamp(min=1)
        expected = is_pair.sum((2, 3)) * (0.5 if self.is_random else 1.0) / n_pairs
        return mask.sum((2, 3)) / n_pairs, expected


def nan_gradient(self, scores, mask):
    numbers = scores.exp() * mask
    return torch.where(mask.any(-1, keepdim=True), numbers / numbers.sum(-1, keepdim=True), 0.0)  # hides it forward


def divide_by_the_spread(self, weights, value):
    n = value.shape[2]
    variance = (value - value.mean(2, keepdim=True)).square().sum(2, keepdim=True) / (n - 1)  # 0/0 for one token
    return weights @ (value / (1 + variance))


def double_the_gradient(self, weights, value):
    return 2 * (weights @ value) - (weights @ value).detach()


def forward_without_edges(self, *tensors, return_edges=False, **arguments):
    out = Honest.forward(self, *tensors, return_edges=return_edges, **arguments)
    edges = EdgeList.from_dense(torch.zeros_like(out.edges.to_dense())) if return_edges else None
    return AttentionOutput(out.values, out.density, out.expected_density, edges)


def forward_with_one_mask(self, *tensors, query_mask=None, key_mask=None, **arguments):
    return Honest.forward(self, *tensors, query_mask=query_mask, key_mask=query_mask, **arguments)


def draw_by_calls(self, query, is_pair, generator):
    self.n_calls = getattr(self, "n_calls", 0) + 1
    return Honest.draw(self, query, is_pair, torch.Generator().manual_seed(self.n_calls))


weights, mix, draw, densities = Honest.weights, Honest.mix, Honest.draw, Honest.densities
# By error: the checks that must fail, and the method that is replaced.
BROKEN = {
    "leaks padding": ({"padding", "company", "edges"}, "weights", lambda self, s, m: s.softmax(-1)),
    "leaks padding in training": (
        {"padding"}, "weights", lambda self, s, m: s.softmax(-1) if self.training else weights(self, s, m)
    ),
    "keeps padded queries": ({"padding"}, "weights", lambda self, s, m: weights(self, s, m | ~m.any(-1, keepdim=True))),
    "NaN in empty rows": ({"finite"}, "weights", lambda self, s, m: s.masked_fill(~m, -torch.inf).softmax(-1)),
    "NaN gradient": ({"finite"}, "weights", nan_gradient),
    "divides by the spread": ({"finite"}, "mix", divide_by_the_spread),
    "global generator": ({"generator"}, "draw", lambda self, q, p, g: draw(self, q, p, None)),
    "ignores the seed": (
        {"generator"}, "draw", lambda self, q, p, g: draw(self, q, p, g and torch.Generator().manual_seed(0))
    ),
    "own generator": ({"generator"}, "draw", draw_by_calls),
    "wrong shape": ({"outputs"}, "mix", lambda self, w, v: mix(self, w, v).transpose(1, 2)),
    "wrong type": ({"outputs"}, "mix", lambda self, w, v: mix(self, w, v).float()),
    "wrong device": ({"outputs"}, "densities", lambda self, m, p: (x.to("meta") for x in densities(self, m, p))),
    "counts padded pairs": (
        {"density", "company"}, "densities", lambda self, m, p: (m.float().mean((2, 3)), densities(self, m, p)[1])
    ),
    "zero over zero": (
        {"density"}, "densities", lambda self, m, p: (m.sum((2, 3)) / p.sum((2, 3)), densities(self, m, p)[1])
    ),
    "looks back without saying so": ({"gradients"}, "weights", lambda self, s, m: weights(self, s, m.tril())),
    "detaches the value": ({"gradients"}, "mix", lambda self, w, v: w @ v.detach()),
    "detaches the scores": ({"gradients"}, "weights", lambda self, s, m: weights(self, s.detach(), m)),
    "doubles the gradient": ({"gradients"}, "mix", double_the_gradient),
    "mixes examples": ({"company"}, "mix", lambda self, w, v: w @ (v + v.mean(0))),
    "hides edges": ({"density", "edges"}, "forward", forward_without_edges),
    "one mask for both": ({"padding"}, "forward", forward_with_one_mask),
    "swaps query and key": (
        {"padding"}, "weights", lambda self, s, m: weights(self, s.mT if s.shape[2] == s.shape[3] else s, m)
    ),
}  # fmt: skip


def broken(name):
    """Returns the attention mechanism with the named error, and the checks that must fail."""
    checks, method, changed = BROKEN[name]
    return type("Broken", (Honest,), {method: changed})(), checks
