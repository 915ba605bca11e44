"""Compares paths, cycles, covers and the relay theorem with dynamic programming; every outcome is proved."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.theory.graphs import has_cycle, has_path, least_paths, random_patterns, three_triangles
from theory.conditions import union
from theory.hamiltonian import check_path, find_hamiltonian_cycle, find_hamiltonian_path, search
from theory.path_cover import (
    PathCover,
    Undecided,
    as_arcs,
    cover_with_few_paths,
    matching_deficit,
    path_cover,
    path_cover_bounds,
    quick_cover,
    solve_cover,
)
from theory.patterns import relay_tokens, three_patterns
from theory.relays import canonical_path, relay_theorem


def arcs_of(pattern):
    return as_arcs(np.asarray(pattern).T)


def pairs_of(pattern):
    """Returns the arcs [from, to]."""
    return [[int(j), int(i)] for i, j in zip(*np.nonzero(pattern), strict=True)]


def is_cover(pattern, paths):
    """Returns whether paths along arcs visit every token once."""
    steps = [(i, j) for path in paths for j, i in pairwise(path)]
    visited = sorted(token for path in paths for token in path)
    return visited == list(range(len(pattern))) and all(pattern[step] for step in steps)


def test_the_check_is_the_definition():
    rng = np.random.default_rng(0)
    answers = Counter()
    for pattern in random_patterns(300, 5, seed=1):
        n = len(pattern)
        order = rng.permutation(n).tolist() if rng.random() < 0.8 else rng.integers(0, n, n).tolist()
        assert check_path(pattern, order) == is_cover(pattern, [order])
        answers[check_path(pattern, order)] += 1
    assert min(answers.values()) > 50 and len(answers) == 2
    for order in ([0, 1], [0, 1, 2, 2], [0, 1, 3], [0, 1, 1], [-1, 0, 1], []):
        assert not check_path(np.ones((3, 3), dtype=bool), order)


@pytest.mark.parametrize(
    "find, exists, n_graphs, n_max",
    [(find_hamiltonian_path, has_path, 500, 9), (find_hamiltonian_cycle, has_cycle, 400, 8)],
)
def test_search_agrees_with_dynamic_programming(find, exists, n_graphs, n_max):
    """Paths are found, with a valid order, or excluded."""
    outcomes = Counter()
    for pattern in random_patterns(n_graphs, n_max, seed=2):
        order = find(pattern)
        assert (order is not None) == exists(pattern)
        if order is not None:
            assert is_cover(pattern, [order]) and (exists is has_path or pattern[order[0], order[-1]])
        outcomes[order is not None] += 1
    assert outcomes[True] > 100 and outcomes[False] > 100


def test_covers_are_covers_and_bounds_are_bounds():
    """Compares the fewest paths with dynamic programming, also by the solver alone, which is rarely needed."""
    n_open = 0
    for pattern in random_patterns(200, 8, seed=11):
        arcs, least = arcs_of(pattern), least_paths(pattern)
        lower, upper = path_cover_bounds(arcs)
        assert matching_deficit(arcs) <= lower <= least <= upper
        quick, best, solved = quick_cover(arcs), cover_with_few_paths(arcs), solve_cover(arcs, 60)
        assert is_cover(pattern, quick.paths) and lower == quick.lower and least <= len(quick.paths) <= upper
        for cover in (best, solved):
            assert is_cover(pattern, cover.paths) and cover.lower == len(cover.paths) == least == path_cover(arcs)
        path = solve_cover(arcs, 60, at_most=1)
        assert is_cover(pattern, path.paths) and (path.lower == len(path.paths) == 1) == (least == 1)
        n_open += upper > lower
    assert n_open > 20
    assert matching_deficit(np.arange(25).reshape(5, 5) < 5) == 4  # a star: one arc is matched, loops never


def test_a_cover_stops_once_the_question_is_settled():
    """Each part has bounds 1 and 4, and a quick cover of 2. Whether 8 or 3 paths suffice needs no search."""
    arcs = arcs_of(np.kron(np.eye(4, dtype=bool), three_triangles()))
    assert path_cover_bounds(arcs_of(three_triangles())) == (1, 4)
    for at_most, is_searched in ((8, False), (3, False), (7, True), (None, True)):
        cover = cover_with_few_paths(arcs, at_most)
        assert cover.is_searched is is_searched and len(cover.paths) == 8
        assert cover.lower == (8 if is_searched else 4)
    assert not cover_with_few_paths(arcs, 7, 0.0).is_searched
    with pytest.raises(Undecided, match="between 4 and 8"):
        path_cover(arcs, 0.0)
    assert cover_with_few_paths(csr_array((0, 0), dtype=bool)) == PathCover(0, [])


FAN = np.zeros((6, 6), dtype=bool)  # three tokens with arcs from only one: strongly connected, but too few heads
FAN[[1, 2, 3], 0] = FAN[4, [1, 2, 3]] = FAN[5, 4] = FAN[0, 5] = True
STAR = np.eye(5, dtype=bool) | (np.arange(5) == 0) | (np.arange(5) == 0)[:, None]
FOUR_PARTS = np.kron(np.eye(4, dtype=bool), three_triangles())  # each needs two paths, which no bound proves


@pytest.mark.parametrize(
    "pattern, evidence, reason",
    [
        (np.tri(6, dtype=bool), "instance", "a path"),
        (np.tri(6, dtype=bool)[np.ix_([2, 0, 1, 5, 4, 3], [2, 0, 1, 5, 4, 3])], "instance", "matching"),
        (union(three_patterns(16, 4)), "instance", "joined by relays"),
        (np.kron(np.eye(2, dtype=bool), np.tri(3, dtype=bool)), "theorem", "no walk"),
        (STAR, "theorem", "relays join up to 2"),
        (FAN, "theorem", "matching"),
        (three_triangles(), "exhaustive", "at least 2 disjoint paths (exact search)"),
        (np.pad(FOUR_PARTS, ((0, 6), (0, 6)), constant_values=True), "exhaustive", "at least 8 disjoint paths"),
        (np.pad(FOUR_PARTS, ((0, 7), (0, 7)), constant_values=True), "instance", "joined by relays"),
    ],
)
def test_outcomes_say_what_they_rest_on_and_no_time_is_no_answer(pattern, evidence, reason):
    found = search(pattern)
    assert found.evidence == evidence and reason in found.reason
    assert (found.order is not None) == (evidence == "instance")
    if evidence == "exhaustive":
        with pytest.raises(Undecided, match="between"):
            search(pattern, 0.0)
    else:
        assert search(pattern, 0.0) == found


# --- relays ----------------------------------------------------------------------------------------------------------


def test_the_relay_theorem_agrees_with_dynamic_programming():
    """Tests 300 random digraphs with relays, for paths and cycles; relays are last, one per block, or listed."""
    rng = np.random.default_rng(5)
    outcomes = Counter()
    for number, pattern in enumerate(random_patterns(300, 9, seed=12)):
        n = len(pattern)
        k = int(rng.integers(1, min(n, 3) + 1))
        relays = ("last", "per_block", rng.permutation(n)[: int(rng.integers(0, k + 1))].tolist())[number % 3]
        chosen = relay_tokens(n, k, relays)
        joined = pattern.copy()
        joined[chosen] = joined[:, chosen] = True
        verdict = relay_theorem(n, k, pairs_of(pattern), relays)
        assert verdict.limit == len(chosen) + 1
        assert verdict.ham_path == has_path(joined) == (verdict.path_cover <= verdict.limit)
        assert verdict.ham_cycle == (n >= 3 and has_cycle(joined))
        rest = np.setdiff1d(np.arange(n), chosen)
        assert verdict.path_cover == (least_paths(pattern[np.ix_(rest, rest)]) if rest.size else 0)
        assert (verdict.order is not None) == verdict.ham_path
        assert verdict.order is None or check_path(joined, verdict.order)
        outcomes[verdict.ham_path, verdict.ham_cycle] += 1
    assert len(outcomes) == 3 and min(outcomes.values()) > 20
    with pytest.raises(Undecided):
        relay_theorem(11, 1, pairs_of(three_triangles()), [10], time_limit=0)


@pytest.mark.parametrize("relays", ["last", "per_block"])
def test_complete_blocks_always_have_the_canonical_path_and_search_finds_it(relays):
    for n in range(1, 13):
        for k in range(1, n + 1):
            assert check_path(union(three_patterns(n, k, relays)), canonical_path(n, k, relays))
    for n, k in [(10, 4), (17, 3), (9, 1)]:
        assert find_hamiltonian_path(union(three_patterns(n, k, relays))) == canonical_path(n, k, relays)
    assert canonical_path(9, 3, [4]) is None and not has_path(union(three_patterns(9, 3, [4])).toarray())
    assert check_path(union(three_patterns(9, 3, [4, 0])), canonical_path(9, 3, [4, 0]))
