"""The worst case of sharpening, means over masks against enumeration, and how their error falls."""

import math

import numpy as np
import pytest
import torch

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from theory import expectation
from theory.patterns import three_patterns
from theory.realisability import attained, realise
from theory.sampler_facts import mask_means


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
        row = mask_means([probability[i][j] for j in order], value[order].tolist(), scores[i, order].tolist())
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


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
def test_the_deviation_is_the_weight_of_all_other_masks(sampler):
    model = model_of([[0.1, 0.9, 0.2], [0.7, 0.0, 0.05], [0.0, 1.0, 0.0]])
    pattern = np.array([[0, 1, 0], [1, 0, 0], [0, 1, 1]], dtype=bool)
    wanted = torch.from_numpy(pattern | np.eye(3, dtype=bool))

    def is_other(edges):
        return torch.tensor(float(not torch.equal(edges.with_self_loops().to_dense()[0, 0], wanted)))

    exact = float(expectation.exact_expectation(is_other, model, sampler))
    assert expectation.mask_deviation(model, pattern, sampler) == pytest.approx(exact, abs=1e-12)


def test_results_carry_over_from_a_pattern_within_the_bound():
    """The bound holds for every mask law; it is useful for saturated heads and says nothing at the block budget."""
    of_mask, _, value = attention(3, seed=3)
    largest = float(value.abs().max())
    pattern, _, _ = three_patterns(3, 2)
    bounds = []
    for model in (realise("A1", 3, 2, "poisson"), realise("A1", 3, 2, "poisson", rate=4.0), realise("A1", 3, 2)):
        on_pattern = of_mask(EdgeList.from_dense(torch.from_numpy(pattern)[None, None]))
        gap = float((expectation.exact_expectation(of_mask, model) - on_pattern).abs().max())
        bounds.append(expectation.transfer_bound(largest, expectation.mask_deviation(model, pattern)))
        assert gap <= bounds[-1] + 1e-12
    assert bounds[0] < 1e-12 < bounds[1] < largest < bounds[2]
    assert attained(realise("A1", 3, 2), pattern).inside == pytest.approx(0.5)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call",
    [
        lambda: expectation.sharpening_scale(3, 0, 0.1),
        lambda: expectation.exact_expectation(lambda edges: edges.density(), model_of(np.full((5, 5), 0.5))),
        lambda: expectation.error_against_draws(
            lambda edges: edges.density(), model_of([[0.5]]), [0], 2, truth=torch.zeros(1)
        ),
        lambda: expectation.decay_exponent([1, 2], [0.0, 1.0]),
        lambda: expectation.mask_deviation(model_of([[0.5]]), np.ones((2, 2), dtype=bool)),
        lambda: expectation.transfer_bound(-1, 0.5),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(SbmtError, match="expected"):
        call()
