"""Exact p-values for random masks, and a limit on the false alarms of all statistical tests together.

Every statistical test is marked ``@pytest.mark.statistical(share=…)`` and judges its p-values once, with the fixture
``judge``. The smallest of m p-values must reach ``share · FALSE_ALARM / m``, so that a test of a correct sampler fails
with probability at most ``share · FALSE_ALARM`` (Bonferroni; nothing is assumed about dependence). ``test_statistics``
adds up the shares of all collected tests and wants at most 1.
"""

import numpy as np
from scipy import stats

FALSE_ALARM = 1e-6  # false-alarm rate of the whole suite, if its seeds were drawn anew
LEAST_EXPECTED = 500  # expected count per cell of a chi-square: with 16 or more, the exact tail, by convolution,
CHI_SQUARE_SLACK = 2  # is at most 1.5 times the limiting tail down to 1e-11


class Judge:
    """Accepts or rejects p-values at one test's share of the suite's false-alarm rate."""

    def __init__(self, share):
        self.share = share
        self.is_used = False

    def rejects(self, *p_values):
        """Returns whether the smallest p-value is too small for a correct sampler. Used to test the power."""
        p = np.concatenate([np.ravel(x) for x in p_values])
        assert p.size and not np.isnan(p).any()
        return bool(p.min() < self.share * FALSE_ALARM / p.size)

    def __call__(self, *p_values):
        assert not self.is_used, "a test judges once, so that its share covers all its comparisons"
        self.is_used = True
        assert not self.rejects(*p_values), [
            f"least p of {np.size(x)}: {np.min(x):.1e} at {np.argmin(x)}" for x in p_values
        ]


def binomial_p_values(counts, n, probability):
    """Returns exact two-sided p-values of counts out of n. A cell of probability 0 or 1 allows no exception."""
    counts, probability = np.asarray(counts), np.asarray(probability)
    lower, upper = stats.binom.cdf(counts, n, probability), stats.binom.sf(counts - 1, n, probability)
    return np.minimum(2 * np.minimum(lower, upper), 1.0)


def joint_p_values(first, second, p_first, p_second):
    """Tests independence of two events over repetitions: they coincide Binomial(n, p q) times.

    Args:
        first, second: bool ``(n, …)`` with broadcasting trailing dimensions.
        p_first, p_second: Their probabilities, of the trailing shapes.
    """
    return binomial_p_values((first & second).sum(0), len(first), p_first * p_second)


def pair_p_values(masks, probability):
    """Applies :func:`joint_p_values` to all pairs of different cells of ``(n, n_cells)`` masks."""
    first, second = np.triu_indices(masks.shape[1], k=1)
    together = masks.T.astype(float) @ masks.astype(float)
    return binomial_p_values(together[first, second], len(masks), probability[first] * probability[second])


def pattern_p_value(masks, probability):
    """Computes the chi-square over all 2^n_cells patterns of ``(n, n_cells)`` masks with independent cells."""
    n_cells = masks.shape[1]
    observed = np.bincount(masks @ (1 << np.arange(n_cells)), minlength=1 << n_cells)
    bits = np.arange(1 << n_cells)[:, None] >> np.arange(n_cells) & 1
    expected = len(masks) * np.where(bits, probability, 1 - probability).prod(1)
    return uniform_p_value(observed, expected)


def uniform_p_value(observed, expected):
    """Computes the chi-square of counts against expected counts, or one expected count for all."""
    expected = np.broadcast_to(expected, observed.shape)
    assert expected.min() >= LEAST_EXPECTED and observed.size >= 16
    statistic = ((observed - expected) ** 2 / expected).sum()
    return min(1.0, CHI_SQUARE_SLACK * stats.chi2.sf(statistic, observed.size - 1))


def bit_p_values(words):
    """Tests how often each of the 32 bits of uniform words is set."""
    words = np.asarray(words).ravel()
    counts = [(words >> bit & 1).sum() for bit in range(32)]
    return binomial_p_values(np.array(counts), words.size, 0.5)
