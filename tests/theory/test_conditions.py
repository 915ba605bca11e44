"""Tests patterns entry by entry, and compares conditions 1 and 3 and their variants with integer products."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import shortest_path

from sbmt import EdgeList
from tests.theory.graphs import count_entries, products, slow_min_layers
from theory.conditions import (
    as_csr,
    causal_layers,
    is_ever_full,
    is_strongly_connected,
    min_layers,
    missing_pairs,
    receptive_sizes,
    static_layers,
    union,
    unreachable_pair,
)
from theory.patterns import blocks, fixed, pattern_counts, relay_tokens, strided, three_patterns

SIZES = [(n, k) for n in range(1, 13) for k in range(1, n + 1)]


def random_layers(n_cases, has_loops, seed, n_max=7):
    rng = np.random.default_rng(seed)
    for _ in range(n_cases):
        n, p = int(rng.integers(1, n_max + 1)), int(rng.integers(1, 4))
        density = rng.uniform(0.05, 0.6)
        yield [(rng.random((n, n)) < density) | (np.eye(n, dtype=bool) & has_loops) for _ in range(p)]


def test_blocks_of_many_tokens():
    n, k = 3 * 10**6, 2 * 10**6
    assert blocks(n, k)[[1, 2, 3, n - 2, n - 1]].tolist() == [0, 1, 2, k - 2, k - 1]  # i k exceeds 2³²


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
    assert relay_tokens(10, 4, [np.int64(7), 2]) == [7, 2] and relay_tokens(10, 4, []) == []


@pytest.mark.parametrize("stride, c", [(1, 0), (1, 1), (3, 2), (4, 1), (4, 4), (20, 5)])
def test_strided_and_fixed_entry_by_entry(stride, c):
    for n, causal, self_loops in product((1, 2, 7, 16), (True, False), (True, False)):
        near, far = strided(n, stride)
        own, summary = fixed(n, stride, c, causal=causal, self_loops=self_loops)
        for i in range(n):
            assert set(np.flatnonzero(near[i])) == set(range(max(0, i - stride), i + 1))
            assert set(np.flatnonzero(far[i])) == {j for j in range(i + 1) if (i - j) % stride == 0}
            allowed = range(i + 1 if causal else n)
            assert set(np.flatnonzero(own[i])) == {j for j in allowed if j // stride == i // stride}
            expected = {j for j in allowed if j % stride >= stride - c} | ({i} if self_loops else set())
            assert set(np.flatnonzero(summary[i])) == expected


# --- conditions ------------------------------------------------------------------------------------------------------


def test_all_kinds_of_patterns_are_the_same_pattern():
    dense = np.random.default_rng(1).random((6, 6)) < 0.4
    coo = coo_array(dense)
    places = (np.tile(coo.row, 2), np.tile(coo.col, 2))
    twice = coo_array((np.tile(coo.data, 2), places), shape=dense.shape)  # duplicates count as one entry
    edges = EdgeList.from_dense(torch.from_numpy(dense)[None, None])
    for pattern in (dense, dense.tolist(), csr_array(dense), coo, twice, edges, torch.from_numpy(dense)):
        assert (as_csr(pattern).toarray() == dense).all() and as_csr(pattern).nnz == dense.sum()
    source = csr_array(np.ones((2, 2), dtype=bool))
    source.data[1] = False
    assert as_csr(source).nnz == 3 and source.nnz == 4  # an explicit zero is not an entry, and the source is unchanged
    mask = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    mask[0, 0, 0, 2] = mask[0, 1, 2, 0] = mask[0, 1, 0, 2] = mask[0, 0, 3, 3] = True
    real = torch.tensor([[True, False, True, True]])
    padded = as_csr(EdgeList.from_dense(mask, real, real))  # heads are united, and padding is left out
    assert padded.toarray().astype(int).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("has_loops", [True, False])
def test_layers_agree_with_integer_products_and_with_waiting_long_enough(has_loops):
    """Tests patterns with and without self-loops. Full sets occur within p ((n − 1)² + 2) layers, if ever."""
    never = 0
    for patterns in random_layers(150, has_loops, seed=4, n_max=6):
        n, p = len(patterns[0]), len(patterns)
        expected = list(products(patterns, 6))
        assert receptive_sizes(patterns, 6) == [reached.sum(1).tolist() for reached in expected]
        missing = [(int(i), int(j)) for i, j in np.argwhere(~expected[2])]
        assert missing_pairs(patterns, 3, most=n * n) == missing and missing_pairs(patterns, 3, most=2) == missing[:2]
        s = slow_min_layers(patterns, p * ((n - 1) ** 2 + 2))
        assert min_layers(patterns) == s
        never += s is None
    assert 10 < never < 140


def test_sets_may_cycle_or_fill_again():
    """Tests two permutations that are never full, and a full set that an empty row destroys and restores."""
    inside, across = np.eye(5, dtype=bool)[[1, 0, 3, 4, 2]], np.roll(np.eye(5, dtype=bool), 1, axis=1)
    assert is_strongly_connected([inside, across]) and min_layers([inside, across]) is None
    first, second = np.array([[[1, 1], [0, 0]], [[1, 0], [1, 0]]], dtype=bool)
    assert min_layers([first, second]) == 2 and receptive_sizes([first, second], 3) == [[2, 0], [2, 2], [2, 0]]
    assert is_ever_full([as_csr(first), as_csr(second)])
    wielandt = np.roll(np.eye(12, dtype=bool), 1, axis=1)
    wielandt[11, 1] = True  # takes longest, far beyond the number of cycles before powers are computed
    assert min_layers([wielandt]) == 11**2 + 1 > 64


def test_finite_exactly_if_strongly_connected_and_bounded_by_diameters():
    connected = 0
    for patterns in random_layers(150, True, seed=5):
        s, pair = min_layers(patterns), unreachable_pair(patterns)
        distances = shortest_path(union(patterns).astype(float), unweighted=True)
        assert (s is not None) == is_strongly_connected(patterns) == bool(np.isfinite(distances).all())
        if s is None:
            assert np.isinf(distances[pair])
        else:
            connected += 1
            assert pair is None and static_layers(patterns) <= s <= len(patterns) * max(1, int(distances.max()))
    assert connected > 30


def test_causal_layers_agree_with_waiting_long_enough():
    reached_at = set()
    for patterns in random_layers(150, False, seed=6, n_max=5):
        n = len(patterns[0])
        below = np.tri(n, dtype=bool)
        causal = [np.tril(pattern) | (np.eye(n, dtype=bool) if n % 2 else False) for pattern in patterns]
        expected = next((t for t, s in enumerate(products(causal, 40), start=1) if (s == below).all()), None)
        assert causal_layers(causal) == expected
        reached_at.add(expected)
    assert {None, 1, 2, 3} <= reached_at
