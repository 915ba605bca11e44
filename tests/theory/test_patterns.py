"""Patterns entry by entry, and their counts two ways."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.theory.graphs import count_entries
from theory.patterns import block_sizes, blocks, fixed, pattern_counts, relay_tokens, strided, three_patterns

SIZES = [(n, k) for n in range(1, 13) for k in range(1, n + 1)]


def test_blocks_are_intervals_of_nearly_equal_size():
    for n, k in SIZES:
        assert blocks(n, k).tolist() == [int(Fraction(i * k, n)) for i in range(n)]
        q, r = divmod(n, k)
        assert sorted(block_sizes(n, k)) == [q] * (k - r) + [q + 1] * r
    n, k = 3 * 10**6, 2 * 10**6
    assert blocks(n, k)[[1, 2, 3, n - 2, n - 1]].tolist() == [0, 1, 2, k - 2, k - 1]  # i k passes 2³²


@pytest.mark.parametrize("relays", ["last", "per_block", "list"])
def test_three_patterns_entry_by_entry(relays):
    for n, k in SIZES:
        named = [0] + [n - 1] * (n > 1) if relays == "list" else relays
        chosen = set(relay_tokens(n, k, named))
        first, second, third = three_patterns(n, k, named)
        for i, j in product(range(n), repeat=2):
            assert first[i, j] == (i * k // n == j * k // n)
            assert second[i, j] == (i == j or j in chosen)
            assert third[i, j] == (i == j or i in chosen)
        assert count_entries([first, second, third]) == pattern_counts(n, k, named)
    assert relay_tokens(10, 4, [np.int64(7), 2]) == [7, 2]
    assert relay_tokens(10, 4, []) == []


def test_strided_entry_by_entry():
    for n, stride in product((1, 2, 7, 16), (1, 3, 4, 20)):
        near, far = strided(n, stride)
        for i in range(n):
            assert set(np.flatnonzero(near[i])) == set(range(max(0, i - stride), i + 1))
            assert set(np.flatnonzero(far[i])) == {j for j in range(i + 1) if (i - j) % stride == 0}


@pytest.mark.parametrize("stride, c", [(1, 0), (1, 1), (3, 2), (4, 1), (4, 4), (20, 5)])
def test_fixed_entry_by_entry(stride, c):
    for n, causal, self_loops in product((1, 2, 7, 16), (True, False), (True, False)):
        own, summary = fixed(n, stride, c, causal=causal, self_loops=self_loops)
        for i in range(n):
            allowed = range(i + 1 if causal else n)
            assert set(np.flatnonzero(own[i])) == {j for j in allowed if j // stride == i // stride}
            expected = {j for j in allowed if j % stride >= stride - c} | ({i} if self_loops else set())
            assert set(np.flatnonzero(summary[i])) == expected
