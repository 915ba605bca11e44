"""Tests certificates: three distinct outcomes, each with a witness that can be checked."""

from importlib import import_module

import numpy as np
import pytest

from tests.theory.graphs import has_path, products, random_patterns, slow_min_layers, three_triangles
from theory.certificate import certify
from theory.conditions import union
from theory.hamiltonian import check_path
from theory.patterns import three_patterns
from theory.simulation import Estimate, certify_draws


def outcomes(certificate):
    return [finding.outcome for finding in certificate.findings]


def test_the_three_patterns():
    certificate = certify(three_patterns(16, 4))
    assert outcomes(certificate) == ["proved"] * 3 and certificate.outcome == "proved"
    assert certificate.n_entries == (64, 76, 76) and certificate.order == (1, 2, 3)
    assert certificate.condition(3).witness == {"n_layers": 5}
    assert check_path(union(three_patterns(16, 4)), certificate.condition(2).witness["order"])
    assert certify(three_patterns(16, 4), (3, 2, 1), repeat=False).condition(3).witness == {"n_layers": 2}
    once = certify(three_patterns(16, 4), repeat=False)
    assert "more cycles" in once.condition(3).reason and once.outcome == "refuted"
    swap = certify([~np.eye(2, dtype=bool)])
    assert outcomes(swap) == ["refuted", "proved", "refuted"] and "self-loops" in swap.condition(3).reason


@pytest.mark.parametrize("repeat", [True, False])
def test_witnesses_hold_on_random_patterns(repeat):
    seen, rng = set(), np.random.default_rng(21)
    for first in random_patterns(150, 6, seed=21):
        n = len(first)
        loops = np.eye(n, dtype=bool) & (rng.random() < 0.6)
        patterns = [first | loops, (rng.random((n, n)) < 0.3) | loops]
        one, two, three = certify(patterns, repeat=repeat).findings
        missing = {(layer + 1, int(i)) for layer in (0, 1) for i in np.flatnonzero(~np.diagonal(patterns[layer]))}
        assert (one.outcome == "proved") == (not missing) == (not one.witness)
        assert {tuple(pair) for pair in one.witness.get("missing", [])} <= missing
        assert (two.outcome == "proved") == has_path(patterns[0] | patterns[1])
        assert two.outcome == "refuted" or check_path(patterns[0] | patterns[1], two.witness["order"])
        n_layers = 2 * ((n - 1) ** 2 + 2) if repeat else 2
        states = list(products(patterns, n_layers))
        is_full = slow_min_layers(patterns, n_layers) is not None if repeat else bool(states[-1].all())
        assert (three.outcome == "proved") == is_full
        if is_full:
            assert states[three.witness["n_layers"] - 1].all()
        else:
            assert repeat or three.witness["missing"]
            after = states if repeat else states[-1:]
            assert all(not state[i, j] for state in after for i, j in three.witness.get("missing", []))
        seen |= {(finding.condition, finding.outcome) for finding in (one, two, three)}
    assert len(seen) == 6


def test_unknown_stays_unknown():
    loops = np.eye(10, dtype=bool)
    patterns = [three_triangles(), loops]
    certificate = certify(patterns, time_limit=0)
    assert outcomes(certificate) == ["proved", "unknown", "proved"] and certificate.outcome == "unknown"
    assert certificate.condition(2).evidence == "heuristic" and certificate.condition(2).witness == {}
    assert outcomes(certify(patterns)) == ["proved", "refuted", "proved"]
    worse = certify([three_triangles(), ~loops & three_triangles()], time_limit=0)
    assert worse.outcome == "refuted", "one refuted condition settles it, whatever is unknown"


def test_many_tokens_are_certified_by_construction(monkeypatch):
    """With n = 1024, k = 32 and complete blocks, the solver is not needed."""
    monkeypatch.setattr(import_module("theory.path_cover"), "MAX_ARCS", 0)
    certificate = certify(three_patterns(1024, 32))
    assert outcomes(certificate) == ["proved"] * 3 and certificate.condition(3).witness == {"n_layers": 5}


def test_draws_count_each_outcome_apart():
    full, empty, hard = np.ones((10, 10), dtype=bool), np.zeros((10, 10), dtype=bool), three_triangles()
    report = certify_draws(([pattern] for pattern in [full] * 5 + [empty] * 3 + [hard] * 2), time_limit=0)
    assert report.conditions == (Estimate(7, 10), Estimate(5, 10, 2), Estimate(7, 10))
    assert report.together == Estimate(5, 10, 2)
    draws = [three_patterns(16, 4)] * 2
    assert [certify_draws(draws, x, repeat=False).together.hits for x in ((1, 2, 3), (3, 2, 1), None)] == [0, 2, 0]
