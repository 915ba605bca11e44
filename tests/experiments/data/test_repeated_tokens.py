"""Tests the synthetic task, and the accuracies with which results are compared."""

import pytest
import torch

from sbmt.experiments.data.repeated_tokens import (
    D_VALUE,
    NOISE,
    majority_accuracy,
    random_mask_ceiling,
    sample_fresh_values,
    sample_repeated_tokens,
)
from tests.layers.inputs import seeded
from tests.statistics import binomial_p_values


@pytest.mark.parametrize("sample", [sample_repeated_tokens, sample_fresh_values])
@pytest.mark.parametrize("batch_size, length", [(50, 7), (3, 1)])
def test_labels_equal_a_double_loop(sample, batch_size, length):
    """Copies of one fresh value lie within 1.3 of each other (typically 0.57), and other values further apart."""
    tokens, labels = sample(batch_size, length, generator=seeded())
    assert tokens.shape[:2] == labels.shape == (batch_size, length) and labels.dtype == torch.float32
    for sequence, marks in zip(tokens, labels.tolist(), strict=True):
        for i, token in enumerate(sequence):
            distances = [float((token - other).float().norm()) for j, other in enumerate(sequence) if j != i]
            assert marks[i] == any(distance < (1.3 if tokens.ndim == 3 else 0.5) for distance in distances)


@pytest.mark.statistical(share=0.001)
def test_fresh_values_and_their_noise_are_normal(judge):
    """The difference of two copies is noise alone. Both laws are tested on one token per sequence."""
    from scipy.stats import chi2, kstest

    tokens, labels = sample_fresh_values(20_000, 2, generator=seeded())
    value = tokens[:, 0].double() / (1 + NOISE**2) ** 0.5
    differences = (tokens[:, 0] - tokens[:, 1])[labels[:, 0] == 1].double() / (2 * NOISE**2) ** 0.5
    p_values = [kstest(x[:, entry].numpy(), "norm").pvalue for x in (value, differences) for entry in (0, D_VALUE - 1)]
    for x in (value, differences):  # entries are independent, so their squares sum to a chi-square variable
        p_values.append(kstest(x.pow(2).sum(1).numpy(), chi2(D_VALUE).cdf).pvalue)
    judge(p_values, binomial_p_values(labels[:, 0].sum(), 20_000, 0.5))


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("length", [2, 64])
def test_majority_accuracy_is_the_share_of_the_commoner_label(length, judge):
    """Tests one token of each sequence, since the tokens of a sequence are dependent."""
    _, labels = sample_repeated_tokens(100_000, length, generator=seeded(length))
    judge(binomial_p_values(labels[:, 0].sum(), 100_000, majority_accuracy(length)))  # two tokens may repeat


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("length, mask_density", [(2, 0.3), (16, 0.9), (64, 0.1), (64, 0.5), (64, 1.0)])
def test_the_ceiling_is_what_the_best_guesser_reaches(mask_density, length, judge):
    """Token 0 sees each other token with probability p and compares.

    A seen repeat settles it. Otherwise the unseen tokens decide: the token is unique with probability (1 − 1/n) to
    the number of them, and the guess is whichever label is likelier.
    """
    tokens, labels = sample_repeated_tokens(100_000, length, generator=seeded(length))
    sees = torch.rand(100_000, length - 1, generator=seeded(1)) < mask_density
    has_seen_repeat = (sees & (tokens[:, 1:] == tokens[:, :1])).any(1)
    is_unique = (1 - 1 / length) ** (~sees).sum(1).double()
    guess = has_seen_repeat | (is_unique < 0.5)
    n_right = int((guess == labels[:, 0].bool()).sum())
    judge(binomial_p_values(n_right, 100_000, min(random_mask_ceiling(length, mask_density), 1.0)))
