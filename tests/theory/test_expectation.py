"""The worst case of sharpening, means over masks against enumeration, and how their error falls."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from sbmt.block_model.model import BlockModel
from theory import expectation


def model_of(probability):
    """A block model whose edge probabilities are exactly these: every token its own cluster."""
    p = torch.as_tensor(probability, dtype=torch.float64)
    eye = torch.eye(len(p), dtype=torch.float64)[None, None]
    return BlockModel(eye, p[None], eye)


def attention(n, seed=0):
    """One head of softmax attention over a mask, self-loops added, as a function of the mask."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = torch.randn(3, 1, 1, n, 2, generator=generator, dtype=torch.float64)

    scores, loops = query @ key.mT / math.sqrt(2), torch.eye(n, dtype=torch.bool)

    def of_mask(edges):
        return scores.masked_fill(~(edges.to_dense() | loops), -math.inf).softmax(-1) @ value

    return of_mask, scores[0, 0], value[0, 0]


def left_over(scores, scale):
    """The weight that softmax leaves to all keys but the best one."""
    return float(1 - (scale * scores.double()).softmax(-1).max())


@pytest.mark.parametrize("n_keys, tolerance", [(2, 0.5), (7, 0.1), (64, 1e-4)])
def test_the_scale_suffices_for_all_scores_and_no_smaller_one_does(n_keys, tolerance):
    gap = 0.3
    scale = expectation.sharpening_scale(n_keys, gap, tolerance)
    worst = torch.full((n_keys,), -1.0, dtype=torch.float64)
    worst[n_keys // 2] = -1.0 + gap
    if scale > 0:
        assert left_over(worst, scale) == pytest.approx(tolerance, rel=1e-9)
        assert left_over(worst, 0.99 * scale) > tolerance
    assert expectation.sharpening_scale(1, gap, tolerance) == 0
    for seed in range(20):
        scores = torch.randn(n_keys, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        best, second = scores.topk(2)[0]
        scores[scores.argmax()] += max(0.0, gap - float(best - second))
        assert left_over(scores, scale) <= tolerance + 1e-12
        fewer = torch.cat([scores.max()[None], scores[scores < scores.max()][: n_keys // 2]])
        assert left_over(fewer, scale) <= tolerance + 1e-12


def test_the_exact_expectation_is_the_mean_over_each_row_s_masks():
    probability = [[0.3, 0.8, 0.1], [0.5, 0.0, 1.0], [0.25, 0.6, 0.9]]
    of_mask, scores, value = attention(3)
    exact = expectation.exact_expectation(of_mask, model_of(probability))[0, 0]
    for i in range(3):
        order = [i, *(j for j in range(3) if j != i)]
        row = expectation.mask_means(
            [probability[i][j] for j in order], value[order].tolist(), scores[i, order].tolist()
        )
        np.testing.assert_allclose(exact[i].numpy(), row.expectation, rtol=1e-12)


def test_the_exact_expectation_follows_the_sampler_s_law():
    model = model_of([[0.5, 1.0], [0.0, 0.25]])

    def of_mask(edges):
        return edges.to_dense()[0, 0].double()

    torch.testing.assert_close(expectation.exact_expectation(of_mask, model), model.expected_mask()[0, 0])
    fastrg = expectation.exact_expectation(of_mask, model, "fastrg")
    torch.testing.assert_close(fastrg, 1 - torch.exp(-model.expected_mask()[0, 0]))


def tail_of_squares(total, n_draws, n_repetitions):
    """Exact two-sided p-value of Σ (2 hits − n)² over repetitions of hits ~ Binomial(n, ½), by convolution."""
    one = np.zeros(n_draws**2 + 1)
    for hits in range(n_draws + 1):
        one[(2 * hits - n_draws) ** 2] += math.comb(n_draws, hits) / 2**n_draws
    law = np.ones(1)
    for _ in range(n_repetitions):
        law = np.convolve(law, one)
    return min(1.0, 2 * min(law[: total + 1].sum(), law[total:].sum()))


@pytest.mark.bad_input  # nothing here is, but shape checks would take nine tenths of the time of 504 small draws
@pytest.mark.statistical(share=0.001)
def test_the_error_falls_as_one_over_the_root_of_the_draws(judge):
    """For one fair edge the squared errors are squares of centred binomials, whose law is computed exactly.

    They are means over entries, three equal ones here.
    """
    model, n_repetitions, n_draws = model_of([[0.5]]), 60, [1, 4, 16]
    truth = torch.tensor([0.5], dtype=torch.float64)
    errors = expectation.error_against_draws(
        lambda edges: torch.full((3,), float(edges.n_edges)), model, n_draws, n_repetitions, truth=truth
    )
    totals = [round(error**2 * n_repetitions * 4 * many**2) for error, many in zip(errors, n_draws, strict=True)]
    judge([tail_of_squares(total, many, n_repetitions) for total, many in zip(totals, n_draws, strict=True)])
    assert errors[0] == 0.5  # a single draw of one fair edge is always half wrong


def softmax(scores, weights):
    weight = np.exp(scores) * weights
    return weight / weight.sum() if weight.sum() else weight


@pytest.mark.parametrize("self_loop", [True, False])
def test_means_over_masks_are_what_enumeration_gives(self_loop):
    p, scores = [0.2, 0.9, 0.5, 1.0, 0.0], np.array([0.3, -1.0, 2.0, 0.0, 5.0])
    values = np.array([[1.0, 0.0], [2.0, -1.0], [0.0, 4.0], [3.0, 3.0], [9.0, 9.0]])
    law = np.array([1.0 if self_loop else 0.2, *p[1:]])
    mean = np.zeros(2)
    for mask in product((0, 1), repeat=5):
        chance = np.prod([q if bit else 1 - q for bit, q in zip(mask, law, strict=True)])
        mean += chance * softmax(scores, np.array(mask)) @ values
    means = expectation.mask_means(p, values.tolist(), scores.tolist(), self_loop)
    np.testing.assert_allclose(means.expectation, mean, rtol=1e-12)
    np.testing.assert_allclose(means.on_support, softmax(scores, law > 0) @ values, rtol=1e-12)
    np.testing.assert_allclose(means.weighted, softmax(scores, law) @ values, rtol=1e-12)


def test_a_row_without_keys_attends_nothing():
    means = expectation.mask_means(0.5, [1.0], [0.0], self_loop=False)
    assert (means.expectation, means.on_support, means.weighted) == (0.5, 1.0, 1.0)
    assert expectation.mask_means(0, [1.0, 2.0], [0.0, 0.0], self_loop=False).expectation == 0
