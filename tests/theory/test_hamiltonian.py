"""Paths, cycles and covers against dynamic programming over all sets of tokens; every outcome has its proof."""

from collections import Counter
from importlib import import_module
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from tests.theory.graphs import has_cycle, has_path, least_paths, random_patterns, three_triangles
from theory import hamiltonian
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
from theory.patterns import three_patterns
from theory.relays import counterexample


def arcs_of(pattern):
    return as_arcs(np.asarray(pattern).T)


def is_cover(pattern, paths):
    """Whether paths along arcs visit every token once."""
    steps = [(i, j) for path in paths for j, i in pairwise(path)]
    visited = sorted(token for path in paths for token in path)
    return visited == list(range(len(pattern))) and all(pattern[step] for step in steps)


def disjoint(*patterns):
    n = sum(map(len, patterns))
    joined, start = np.zeros((n, n), dtype=bool), 0
    for pattern in patterns:
        joined[start : start + len(pattern), start : start + len(pattern)] = pattern
        start += len(pattern)
    return joined


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
    """Found where there is one, with a valid order, and excluded where there is none."""
    outcomes = Counter()
    for pattern in random_patterns(n_graphs, n_max, seed=2):
        order = find(pattern)
        assert (order is not None) == exists(pattern)
        if order is not None:
            assert is_cover(pattern, [order]) and (exists is has_path or pattern[order[0], order[-1]])
        outcomes[order is not None] += 1
    assert outcomes[True] > 100 and outcomes[False] > 100


def test_covers_are_covers_and_bounds_are_bounds():
    """The fewest paths against dynamic programming, also by the solver alone, which other proofs leave little to do."""
    n_open = 0
    for pattern in random_patterns(200, 8, seed=11):
        arcs, least = arcs_of(pattern), least_paths(pattern)
        lower, upper = path_cover_bounds(arcs)
        assert lower <= least <= upper
        quick, best, solved = quick_cover(arcs), cover_with_few_paths(arcs), solve_cover(arcs, 60)
        assert is_cover(pattern, quick.paths) and lower == quick.lower and least <= len(quick.paths) <= upper
        for cover in (best, solved):
            assert is_cover(pattern, cover.paths) and cover.lower == len(cover.paths) == least == path_cover(arcs)
        path = solve_cover(arcs, 60, at_most=1)
        assert is_cover(pattern, path.paths) and (path.lower == len(path.paths) == 1) == (least == 1)
        n_open += upper > lower
    assert n_open > 20


def test_a_cover_stops_once_the_question_is_settled():
    """Each part has bounds 1 and 4 and a quick cover of 2; whether 8 paths or 3 suffice needs no search."""
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


def test_matching_deficit_by_hand():
    """A star out of token 0: one arc can be matched, so all but one of five tokens start a path."""
    star = np.zeros((5, 5), dtype=bool)
    star[0, 1:] = True
    assert matching_deficit(star) == 4
    assert matching_deficit(np.roll(np.eye(3, dtype=bool), 1, axis=1)) == 0
    assert matching_deficit(np.eye(2, dtype=bool)) == 2  # loops match nothing


FAN = np.zeros((6, 6), dtype=bool)  # three tokens that only one leads to: strongly connected, and too few heads
FAN[[1, 2, 3], 0] = FAN[4, [1, 2, 3]] = FAN[5, 4] = FAN[0, 5] = True
STAR = np.eye(5, dtype=bool) | (np.arange(5) == 0) | (np.arange(5) == 0)[:, None]


@pytest.mark.parametrize(
    "pattern, evidence, reason",
    [
        (np.ones((1, 1), dtype=bool), "instance", "paths"),
        (np.tri(6, dtype=bool), "instance", "a path"),
        (np.tri(6, dtype=bool)[np.ix_([2, 0, 1, 5, 4, 3], [2, 0, 1, 5, 4, 3])], "instance", "matching"),
        (union(three_patterns(16, 4)), "instance", "joined by relays"),
        (disjoint(np.tri(3, dtype=bool), np.tri(2, dtype=bool)), "theorem", "no walk"),
        (STAR, "theorem", "relays join up to 2"),
        (FAN, "theorem", "matching"),
        (three_triangles(), "exhaustive", "at least 2 disjoint paths (exact search)"),
    ],
)
def test_outcomes_say_what_they_rest_on(pattern, evidence, reason):
    found = search(pattern)
    assert found.evidence == evidence and reason in found.reason
    assert (found.order is not None) == (evidence == "instance")


def test_no_time_is_no_answer():
    """The same graph is decided with time and left undecided without; never guessed."""
    pattern = three_triangles()
    with pytest.raises(Undecided, match="between 1 and 2"):
        find_hamiltonian_path(pattern, 0.0)
    assert find_hamiltonian_path(pattern) is None and not has_path(pattern)


def test_no_time_leaves_relays_undecided_as_well():
    """Four parts need two paths each, which no bound shows; six relays join seven paths and seven join eight."""
    parts = disjoint(*[three_triangles()] * 4)
    too_few, enough = (np.pad(parts, ((0, many), (0, many)), constant_values=True) for many in (6, 7))
    with pytest.raises(Undecided, match="between 4 and 8"):
        search(too_few, 0.0)
    found = search(too_few)
    assert found.order is None and found.evidence == "exhaustive" and "exact search" in found.reason
    assert is_cover(enough, [search(enough, 0.0).order])


def test_graphs_too_large_for_the_solver_are_undecided(monkeypatch):
    monkeypatch.setattr(import_module("theory.path_cover"), "MAX_ARCS", 5)
    with pytest.raises(Undecided, match="too many"):
        find_hamiltonian_path(three_triangles())


def test_a_wrong_path_never_leaves(monkeypatch):
    """What a search returns is checked against the arcs, whoever found it."""
    monkeypatch.setattr(hamiltonian, "cover_with_few_paths", lambda *_: PathCover(1, [list(range(10))]))
    with pytest.raises(AssertionError, match="follow the arcs"):
        find_hamiltonian_path(three_triangles())


def test_the_counterexample_is_excluded_by_search_and_by_sets():
    """The union of n = 18, k = 3: no path, by the solver without the relay theorem, and by dynamic programming."""
    n, k, block_arcs = counterexample()
    pattern = union(three_patterns(n, k)[1:]).toarray()
    for source, target in block_arcs:
        pattern[target, source] = True
    assert solve_cover(arcs_of(pattern), 60, at_most=1).lower == 2
    assert not has_path(pattern)
    found = search(pattern)
    assert found.order is None and found.evidence == "theorem" and "at least 5 disjoint paths" in found.reason
