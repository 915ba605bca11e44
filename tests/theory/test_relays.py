"""Path covers and the relay theorem against dynamic programming; constructions and the paper's walk."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.theory.graphs import has_cycle, has_path, least_paths, random_patterns, single_arc, three_triangles
from theory.conditions import union
from theory.exact_search import Deadline, Undecided, solve_cover
from theory.hamiltonian import arcs_of, check_path, find_hamiltonian_path
from theory.path_cover import (
    check_arcs,
    cover_with_few_paths,
    matching_deficit,
    path_cover,
    path_cover_bounds,
    quick_cover,
)
from theory.patterns import block_sizes, blocks, relay_tokens, three_patterns
from theory.relays import canonical_path, one_relay_per_block_path, paper_walk, relay_theorem


def is_cover(pattern, paths):
    """Whether paths along arcs visit every token once."""
    steps = [(i, j) for path in paths for j, i in pairwise(path)]
    return sorted(token for path in paths for token in path) == list(range(len(pattern))) and all(
        pattern[step] for step in steps
    )


# --- path covers -----------------------------------------------------------------------------------------------------


def test_covers_are_covers_and_bounds_are_bounds():
    """Also the fewest paths, against dynamic programming, on 200 digraphs of up to 8 tokens."""
    gaps = Counter()
    for pattern in random_patterns(200, 8, seed=11):
        arcs, least = arcs_of(pattern), least_paths(pattern)
        lower, upper = path_cover_bounds(arcs)
        assert lower <= least <= upper
        quick, best = quick_cover(arcs), cover_with_few_paths(arcs)
        assert is_cover(pattern, quick.paths) and lower == quick.lower and least <= len(quick.paths) <= upper
        assert is_cover(pattern, best.paths) and best.is_minimal and len(best.paths) == least == path_cover(arcs)
        gaps[upper - lower > 0] += 1
        lower, paths = solve_cover(arcs, Deadline(60))
        assert lower == len(paths) == least and is_cover(pattern, paths)
    assert gaps[True] > 20


def test_a_cover_stops_once_the_question_is_settled():
    """Each part has bounds 1 and 4 and a quick cover of 2; whether 8 paths or 3 suffice needs no search."""
    parts = np.kron(np.eye(4, dtype=bool), three_triangles())
    arcs = arcs_of(parts)
    assert path_cover_bounds(arcs_of(three_triangles())) == (1, 4)
    for at_most, is_searched in ((8, False), (3, False), (7, True), (None, True)):
        cover = cover_with_few_paths(arcs, at_most)
        assert cover.is_searched is is_searched and len(cover.paths) == 8
        assert cover.lower == (8 if is_searched else 4)
    assert not cover_with_few_paths(arcs, 7, 0.0).is_searched
    with pytest.raises(Undecided, match="between 4 and 8"):
        path_cover(arcs, 0.0)


def test_nothing_needs_no_path():
    empty = csr_array((0, 0), dtype=bool)
    assert path_cover_bounds(empty) == (0, 0) and path_cover(empty) == 0 == matching_deficit(empty)


def test_matching_deficit_by_hand():
    """A star out of token 0: one arc can be matched, so all but one of five tokens start a path."""
    assert matching_deficit(check_arcs(5, [[0, 1], [0, 2], [0, 3], [0, 4]])) == 4
    assert matching_deficit(check_arcs(3, [[0, 1], [1, 2], [2, 0]])) == 0
    assert matching_deficit(check_arcs(2, [[0, 0], [1, 1]])) == 2  # loops match nothing


# --- the relay theorem -----------------------------------------------------------------------------------------------


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
        verdict = relay_theorem(n, k, single_arc(pattern), relays)
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
        relay_theorem(11, 1, single_arc(three_triangles()), [10], time_limit=0)


# --- constructions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relays", ["last", "per_block"])
def test_complete_blocks_always_have_the_canonical_path_and_search_finds_it(relays):
    for n in range(1, 13):
        for k in range(1, n + 1):
            assert check_path(union(three_patterns(n, k, relays)), canonical_path(n, k, relays))
    for n, k in [(10, 4), (17, 3), (9, 1)]:
        assert find_hamiltonian_path(union(three_patterns(n, k, relays))) == canonical_path(n, k, relays)


def test_complete_blocks_with_too_few_relays_have_none():
    patterns = three_patterns(9, 3, [4])
    assert canonical_path(9, 3, [4]) is None and not has_path(union(patterns).toarray())
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
