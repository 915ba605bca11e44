"""The relay theorem against dynamic programming; constructions and the paper's walk."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.theory.graphs import arcs_of, has_cycle, has_path, least_paths, random_patterns, three_triangles
from theory.conditions import union
from theory.hamiltonian import check_path, find_hamiltonian_path
from theory.path_cover import Undecided
from theory.patterns import block_sizes, blocks, relay_tokens, three_patterns
from theory.relays import canonical_path, one_relay_per_block_path, paper_walk, relay_theorem


def test_the_relay_theorem_agrees_with_dynamic_programming():
    """300 random digraphs with relays added, path and cycle; relays last, one per block, and listed."""
    rng = np.random.default_rng(5)
    outcomes = Counter()
    for number, pattern in enumerate(random_patterns(300, 9, seed=12)):
        n = len(pattern)
        k = int(rng.integers(1, min(n, 3) + 1))
        relays = ("last", "per_block", rng.permutation(n)[: int(rng.integers(0, k + 1))].tolist())[number % 3]
        chosen = relay_tokens(n, k, relays)
        joined = pattern.copy()
        joined[chosen] = joined[:, chosen] = True
        verdict = relay_theorem(n, k, arcs_of(pattern), relays)
        assert verdict.limit == len(chosen) + 1
        assert verdict.ham_path == has_path(joined) == (verdict.path_cover <= verdict.limit)
        assert verdict.ham_cycle == (n >= 3 and has_cycle(joined))
        rest = np.setdiff1d(np.arange(n), chosen)
        assert verdict.path_cover == (least_paths(pattern[np.ix_(rest, rest)]) if rest.size else 0)
        assert (verdict.order is not None) == verdict.ham_path
        assert verdict.order is None or check_path(joined, verdict.order)
        outcomes[verdict.ham_path, verdict.ham_cycle] += 1
    assert len(outcomes) == 3 and min(outcomes.values()) > 20


def test_covers_add_over_blocks_and_arcs_at_relays_do_not_count():
    assert relay_theorem(12, 3, [[0, 1], [1, 2], [4, 5], [7, 6], [0, 9], [9, 3]]).path_cover == 2 + 2 + 1


def test_relays_without_time_are_undecided():
    with pytest.raises(Undecided):
        relay_theorem(11, 1, arcs_of(three_triangles()), [10], time_limit=0)


@pytest.mark.parametrize("relays", ["last", "per_block"])
def test_complete_blocks_always_have_the_canonical_path_and_search_finds_it(relays):
    for n in range(1, 13):
        for k in range(1, n + 1):
            assert check_path(union(three_patterns(n, k, relays)), canonical_path(n, k, relays))
    for n, k in [(10, 4), (17, 3), (9, 1)]:
        assert find_hamiltonian_path(union(three_patterns(n, k, relays))) == canonical_path(n, k, relays)


def test_complete_blocks_with_too_few_relays_have_none():
    assert canonical_path(9, 3, [4]) is None and not has_path(union(three_patterns(9, 3, [4])).toarray())
    assert check_path(union(three_patterns(9, 3, [4, 0])), canonical_path(9, 3, [4, 0]))


@pytest.mark.parametrize("n, k", [(4, 1), (10, 10), (23, 5)])
def test_one_relay_per_block_needs_only_the_cycles_and_what_relays_send(n, k):
    rng = np.random.default_rng(n)
    block = blocks(n, k)
    cycles = [rng.permutation(np.flatnonzero(block == b)).tolist() for b in range(k)]
    relays = [int(rng.choice(cycle)) for cycle in cycles]
    pattern = three_patterns(n, k, relays)[1]
    for cycle in cycles:
        pattern[np.roll(cycle, -1), cycle] = True
    order = one_relay_per_block_path(n, cycles, relays)
    assert check_path(pattern, order)
    assert [order[end - 1] for end in np.cumsum(block_sizes(n, k))] == relays


@pytest.mark.parametrize("n, k", [(10, 4), (7, 1)])
@pytest.mark.parametrize("relay", ["same", "next"])
def test_the_papers_walk_repeats_relays(n, k, relay):
    walk = paper_walk(n, k, relay)
    joined = union(three_patterns(n, k)).toarray()
    assert set(walk) == set(range(n)) and len(walk) == n + k - 1
    assert all(joined[i, j] for j, i in pairwise(walk))
    assert check_path(joined, walk) == (k == 1)
