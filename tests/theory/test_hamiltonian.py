"""Paths and cycles against dynamic programming over all sets of tokens; every outcome has its proof."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from tests.theory.graphs import has_cycle, has_path, random_patterns, three_triangles
from theory import exact_search, hamiltonian
from theory.conditions import union
from theory.exact_search import Deadline, Undecided, solve_circuit
from theory.hamiltonian import arcs_of, check_path, find_hamiltonian_cycle, find_hamiltonian_path, search
from theory.patterns import three_patterns
from theory.relays import counterexample


def check_order(pattern, order):
    """As :func:`check_path`, straight from the definition."""
    steps = pairwise(order)
    return sorted(order) == list(range(len(pattern))) and all(pattern[query, key] for key, query in steps)


def test_the_check_is_the_definition():
    rng = np.random.default_rng(0)
    answers = Counter()
    for pattern in random_patterns(300, 5, seed=1):
        n = len(pattern)
        order = rng.permutation(n).tolist() if rng.random() < 0.8 else rng.integers(0, n, n).tolist()
        assert check_path(pattern, order) == check_order(pattern, order)
        answers[check_path(pattern, order)] += 1
    assert min(answers.values()) > 50 and len(answers) == 2


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 2, 2], [0, 1, 3], [0, 1, 1], [-1, 0, 1], []])
def test_what_is_no_permutation_is_no_path(order):
    assert not check_path(np.ones((3, 3), dtype=bool), order)


@pytest.mark.parametrize("is_closed, exists, n_graphs, n_max", [(False, has_path, 500, 9), (True, has_cycle, 400, 8)])
def test_search_agrees_with_dynamic_programming(is_closed, exists, n_graphs, n_max):
    """Found where there is one, with a valid order, and excluded where there is none."""
    outcomes = Counter()
    for pattern in random_patterns(n_graphs, n_max, seed=2):
        order = search(pattern, is_closed=is_closed).order
        assert (order is not None) == exists(pattern)
        if order is not None:
            assert check_order(pattern, order) and (not is_closed or pattern[order[0], order[-1]])
        outcomes[order is not None] += 1
    assert outcomes[True] > 100 and outcomes[False] > 100


def test_the_solver_alone_agrees_too():
    """Without the cheap proofs before it, which leave it little to do on small graphs."""
    for pattern in random_patterns(120, 7, seed=4, n_min=2):
        order = solve_circuit(arcs_of(pattern), Deadline(60), is_closed=False)
        assert (order is not None) == has_path(pattern)
        assert order is None or check_order(pattern, order)


def disjoint(*patterns):
    n = sum(map(len, patterns))
    joined, start = np.zeros((n, n), dtype=bool), 0
    for pattern in patterns:
        joined[start : start + len(pattern), start : start + len(pattern)] = pattern
        start += len(pattern)
    return joined


FAN = np.zeros((6, 6), dtype=bool)  # three tokens that only one leads to: strongly connected, and too few heads
FAN[[1, 2, 3], 0] = FAN[4, [1, 2, 3]] = FAN[5, 4] = FAN[0, 5] = True
STAR = np.eye(5, dtype=bool) | (np.arange(5) == 0) | (np.arange(5) == 0)[:, None]


@pytest.mark.parametrize(
    "pattern, evidence, reason",
    [
        (np.ones((1, 1), dtype=bool), "instance", "one token"),
        (np.tri(6, dtype=bool), "instance", "numbering"),
        (np.tri(6, dtype=bool).T, "instance", "numbering"),
        (np.tri(6, dtype=bool)[np.ix_([2, 0, 1, 5, 4, 3], [2, 0, 1, 5, 4, 3])], "instance", "without cycles"),
        (union(three_patterns(16, 4)), "instance", "joined by relays"),
        (disjoint(np.tri(3, dtype=bool), np.tri(2, dtype=bool)), "theorem", "no walk"),
        (STAR, "theorem", "relays can join at most 2"),
        (FAN, "theorem", "matching"),
        (three_triangles(), "exhaustive", "every order of 10 tokens"),
    ],
)
def test_outcomes_say_what_they_rest_on(pattern, evidence, reason):
    found = search(pattern)
    assert found.evidence == evidence and reason in found.reason
    assert (found.order is not None) == (evidence == "instance")


def test_no_time_is_no_answer():
    """The same graph is decided with time and left undecided without; never guessed."""
    pattern = three_triangles()
    for find in (find_hamiltonian_path, find_hamiltonian_cycle):
        with pytest.raises(Undecided):
            find(pattern, 0.0)
        assert find(pattern) is None
    assert not has_path(pattern)


def test_no_time_leaves_relays_undecided_as_well():
    """Four parts need two paths each, which no bound shows; six relays join seven paths and seven join eight."""
    parts = disjoint(*[three_triangles()] * 4)
    too_few, enough = (np.pad(parts, ((0, many), (0, many)), constant_values=True) for many in (6, 7))
    with pytest.raises(Undecided, match="between 4 and 8"):
        search(too_few, 0.0)
    found = search(too_few)
    assert found.order is None and found.evidence == "exhaustive" and "exact search" in found.reason
    assert check_order(enough, search(enough, 0.0).order)


def test_graphs_too_large_for_the_solver_are_undecided(monkeypatch):
    monkeypatch.setattr(exact_search, "MAX_ARCS", 5)
    with pytest.raises(Undecided, match="too many"):
        find_hamiltonian_path(three_triangles())


def test_a_wrong_path_never_leaves(monkeypatch):
    """What a search returns is checked against the arcs, whoever found it."""
    monkeypatch.setattr(hamiltonian, "solve_circuit", lambda *_, **__: list(range(10)))
    with pytest.raises(AssertionError, match="follow the arcs"):
        find_hamiltonian_path(three_triangles())


def test_the_counterexample_is_excluded_by_search_and_by_sets():
    """The union of n = 18, k = 3: no path, by the solver without the relay theorem, and by dynamic programming."""
    n, k, block_arcs = counterexample()
    pattern = union(three_patterns(n, k)[1:]).toarray()
    for source, target in block_arcs:
        pattern[target, source] = True
    assert solve_circuit(arcs_of(pattern), Deadline(60), is_closed=False) is None
    assert not has_path(pattern)
    found = search(pattern)
    assert found.order is None and found.evidence == "theorem" and "at least 5 disjoint paths" in found.reason
