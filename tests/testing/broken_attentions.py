"""An attention written from scratch, and copies of it with one thing wrong each."""

import torch
from torch import nn

from sbmt.attention.inputs import check_attention_inputs
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import check_mask
from sbmt.types import AttentionOutput


class Honest(nn.Module):
    """Softmax over a random half of the pairs (or all), as a learner would write it; every step can be replaced."""

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


class LeaksPadding(Honest):
    def weights(self, scores, mask):
        return scores.softmax(-1) * mask.any(-1, keepdim=True)  # the sum runs over padded keys too


class ForgetsPaddedQueries(Honest):
    def weights(self, scores, mask):
        mask = mask | (~mask.any(-1, keepdim=True) & mask.any(2, keepdim=True))
        return super().weights(scores, mask)


class NaNOnEmptyRows(Honest):
    def weights(self, scores, mask):
        return scores.masked_fill(~mask, -torch.inf).softmax(-1)


class DividesByTheSpread(Honest):
    def mix(self, weights, value):
        n = value.shape[2]
        variance = (value - value.mean(2, keepdim=True)).square().sum(2, keepdim=True) / (n - 1)  # 0/0 for one token
        return weights @ (value / (1 + variance))


class NaNGradient(Honest):
    def weights(self, scores, mask):
        numbers = scores.exp() * mask
        return torch.where(mask.any(-1, keepdim=True), numbers / numbers.sum(-1, keepdim=True), 0.0)  # hides it forward


class DrawsFromTheGlobalGenerator(Honest):
    def draw(self, query, is_pair, generator):
        return super().draw(query, is_pair, None)


class IgnoresTheSeed(Honest):
    def draw(self, query, is_pair, generator):
        return super().draw(query, is_pair, generator and torch.Generator().manual_seed(0))


class KeepsItsOwnGenerator(Honest):
    def __init__(self, is_random=True):
        super().__init__(is_random)
        self.n_calls = 0

    def draw(self, query, is_pair, generator):
        self.n_calls += 1
        return super().draw(query, is_pair, torch.Generator().manual_seed(self.n_calls))


class WrongShape(Honest):
    def mix(self, weights, value):
        return super().mix(weights, value).transpose(1, 2)


class WrongType(Honest):
    def mix(self, weights, value):
        return super().mix(weights, value).float()


class CountsPaddedPairs(Honest):
    def densities(self, mask, is_pair):
        return mask.float().mean((2, 3)), super().densities(mask, is_pair)[1]


class ZeroOverZero(Honest):
    def densities(self, mask, is_pair):
        return mask.sum((2, 3)) / is_pair.sum((2, 3)), super().densities(mask, is_pair)[1]


class LooksBackOnly(Honest):
    def weights(self, scores, mask):
        return super().weights(scores, mask.tril())


class PrefersTheFirst(Honest):
    def draw(self, query, is_pair, generator):
        rate = torch.linspace(0.9, 0.1, is_pair.shape[3])
        return is_pair & (torch.rand(is_pair.shape, generator=generator) < rate)


class DetachesTheValue(Honest):
    def mix(self, weights, value):
        return weights @ value.detach()


class DetachesTheScores(Honest):
    def weights(self, scores, mask):
        return super().weights(scores.detach(), mask)


class DoublesTheGradient(Honest):
    def mix(self, weights, value):
        mixed = weights @ value
        return 2 * mixed - mixed.detach()


class MixesExamples(Honest):
    def mix(self, weights, value):
        return weights @ (value + value.mean(0))


class HidesEdges(Honest):
    def forward(self, *tensors, return_edges=False, **arguments):
        out = super().forward(*tensors, return_edges=return_edges, **arguments)
        edges = EdgeList.from_dense(torch.zeros_like(out.edges.to_dense())) if return_edges else None
        return AttentionOutput(out.values, out.density, out.expected_density, edges)


class TakesAnything(Honest):
    def check(self, query, key, value):
        pass


class WritesToItsInput(Honest):
    def check(self, query, key, value):
        super().check(query, key, value)
        if not query.requires_grad:
            query.mul_(0.5)


class Learns(Honest):
    def __init__(self, is_random=True):
        super().__init__(is_random)
        self.register_buffer("n_seen", torch.zeros(()))

    def check(self, query, key, value):
        super().check(query, key, value)
        self.n_seen += 1


class StaysOnTheMeta(Honest):
    def densities(self, mask, is_pair):
        return tuple(density.to("meta") for density in super().densities(mask, is_pair))


class LeaksPaddingInTraining(Honest):
    def weights(self, scores, mask):
        if self.training:
            return scores.softmax(-1) * mask.any(-1, keepdim=True)
        return super().weights(scores, mask)


class TakesQueryMaskForKeyMask(Honest):
    def forward(self, *tensors, query_mask=None, key_mask=None, **arguments):
        return super().forward(*tensors, query_mask=query_mask, key_mask=query_mask, **arguments)


class DropsKeysBeyondTheQueries(Honest):
    def weights(self, scores, mask):
        return super().weights(scores, mask & (torch.arange(scores.shape[3]) < scores.shape[2]))


class MixesHeads(Honest):
    def mix(self, weights, value):
        return super().mix(weights, value.mean(1, keepdim=True).expand_as(value))


class SwapsQueryAndKey(Honest):
    def weights(self, scores, mask):
        return super().weights(scores.mT if scores.shape[2] == scores.shape[3] else scores, mask)


class DropsKeysBeyondTheSixth(Honest):
    def weights(self, scores, mask):
        return super().weights(scores, mask & (torch.arange(scores.shape[3]) < 6))


class ExpectsTooLittle(Honest):
    def densities(self, mask, is_pair):
        density, expected = super().densities(mask, is_pair)
        return density, expected * 0.6


class ForgetsTheScale(Honest):
    def weights(self, scores, mask):
        return super().weights(scores * 2, mask)  # √d_head for the width that the tests take
