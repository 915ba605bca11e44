"""Certificates: three outcomes that are never mixed up, each with a witness that can be checked."""

import json
from importlib import import_module

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import sbmt
from tests.theory.graphs import has_path, products, random_patterns, slow_min_layers, three_triangles
from theory.certificate import NAMES, certify
from theory.conditions import union
from theory.hamiltonian import check_path
from theory.patterns import fixed, strided, three_patterns
from theory.simulation import Estimate, certify_draws


def outcomes(certificate):
    return [finding.outcome for finding in certificate.findings]


def random_layers(n_cases, seed):
    rng = np.random.default_rng(seed)
    for pattern in random_patterns(n_cases, 6, seed=seed):
        n = len(pattern)
        loops = np.eye(n, dtype=bool) & (rng.random() < 0.6)
        yield [pattern | loops, (rng.random((n, n)) < 0.3) | loops]


def test_the_three_patterns():
    certificate = certify(three_patterns(16, 4))
    assert outcomes(certificate) == ["proved"] * 3 and certificate.outcome == "proved"
    assert certificate.n_entries == (64, 76, 76) and certificate.order == (1, 2, 3)
    assert certificate.condition(3).witness == {"n_layers": 5}
    assert check_path(union(three_patterns(16, 4)), certificate.condition(2).witness["order"])
    assert certify(three_patterns(16, 4), (3, 2, 1)).condition(3).witness == {"n_layers": 2}
    assert certify(three_patterns(16, 4), (3, 2, 1)).n_entries == (64, 76, 76)


def test_one_pass_is_not_repetition():
    """Three patterns in the listed order do not reach all in one pass; in reverse they do."""
    once = certify(three_patterns(16, 4), repeat=False)
    finding = once.condition(3)
    assert finding.outcome == "refuted" and "more cycles" in finding.reason and once.outcome == "refuted"
    *_, reached = products(three_patterns(16, 4), 3)
    assert all(not reached[i, j] for i, j in finding.witness["missing"])
    assert certify(three_patterns(16, 4), (3, 2, 1), repeat=False).condition(3).witness == {"n_layers": 2}


@pytest.mark.parametrize("repeat", [True, False])
def test_witnesses_hold_on_random_patterns(repeat):
    seen = set()
    for patterns in random_layers(150, seed=21):
        n = len(patterns[0])
        certificate = certify(patterns, repeat=repeat)
        one, two, three = certificate.findings
        joined = patterns[0] | patterns[1]
        missing = {(layer + 1, int(i)) for layer in (0, 1) for i in np.flatnonzero(~np.diagonal(patterns[layer]))}
        assert (one.outcome == "proved") == (not missing)
        assert {tuple(pair) for pair in one.witness.get("missing", [])} <= missing
        assert bool(one.witness) == bool(missing)
        assert (two.outcome == "proved") == has_path(joined)
        assert two.outcome == "refuted" or check_path(joined, two.witness["order"])
        n_layers = 2 * ((n - 1) ** 2 + 2) if repeat else 2
        states = list(products(patterns, n_layers))
        is_full = slow_min_layers(patterns, n_layers) is not None if repeat else bool(states[-1].all())
        assert (three.outcome == "proved") == is_full
        if is_full:
            assert states[three.witness["n_layers"] - 1].all()
        elif repeat:
            assert all(not state[i, j] for state in states for i, j in three.witness.get("missing", []))
        else:
            assert three.witness["missing"] and all(not states[-1][i, j] for i, j in three.witness["missing"])
        seen |= {(f.condition, f.outcome, f.evidence) for f in certificate.findings}
    assert {(number, outcome) for number, outcome, _ in seen} == {
        (number, outcome) for number in (1, 2, 3) for outcome in ("proved", "refuted")
    }


def test_refutations_by_example():
    causal = certify(strided(16, 4))
    assert outcomes(causal) == ["proved", "proved", "refuted"]
    assert causal.condition(2).witness["order"] == list(range(16))
    i, j = causal.condition(3).witness["missing"][0]
    assert i < j and causal.condition(3).evidence == "theorem"
    no_loops = certify(fixed(16, 4, 1))
    assert no_loops.condition(1).outcome == "refuted" and no_loops.condition(1).witness["missing"][0] == [2, 0]
    swap = certify([~np.eye(2, dtype=bool)])
    assert outcomes(swap) == ["refuted", "proved", "refuted"] and "self-loops" in swap.condition(3).reason


def test_unknown_stays_unknown():
    loops = np.eye(10, dtype=bool)
    patterns = [three_triangles(), loops]
    certificate = certify(patterns, time_limit=0)
    assert outcomes(certificate) == ["proved", "unknown", "proved"] and certificate.outcome == "unknown"
    assert certificate.condition(2).evidence == "heuristic" and certificate.condition(2).witness == {}
    assert outcomes(certify(patterns)) == ["proved", "refuted", "proved"]
    assert certify(patterns).condition(2).evidence == "exhaustive"
    worse = certify([three_triangles(), ~loops & three_triangles()], time_limit=0)
    assert worse.outcome == "refuted", "one refuted condition settles it, whatever is unknown"


def test_edge_lists_sparse_and_dense_get_the_same_certificate():
    dense = three_patterns(10, 4)
    heads = torch.from_numpy(np.stack([dense[0], dense[1]]))[None]
    edges = sbmt.EdgeList.from_dense(heads)
    assert certify(dense) == certify([csr_array(pattern) for pattern in dense])
    assert certify([edges]) == certify([dense[0] | dense[1]])


def test_many_tokens_are_certified_by_construction(monkeypatch):
    """n = 1024, k = 32, complete blocks: nothing is left to the solver."""
    monkeypatch.setattr(import_module("theory.path_cover"), "MAX_ARCS", 0)
    certificate = certify(three_patterns(1024, 32))
    assert outcomes(certificate) == ["proved"] * 3
    assert certificate.condition(3).witness == {"n_layers": 5}
    assert sorted(certificate.condition(2).witness["order"]) == list(range(1024))


def test_text_and_json_say_it_all():
    certificate = certify(three_patterns(16, 4), repeat=False)
    lines = certificate.text().splitlines()
    assert lines[0] == "3 patterns on 16 tokens, 216 entries; order 1, 2, 3, acting once"
    assert lines[1].startswith("condition 1 (self-loops): proved [instance]")
    assert "proved [instance]: paths" in lines[2] and ": 0 1 2 3 12 4" in lines[2]
    assert "refuted [instance]" in lines[3] and "(0, 8)" in lines[3] and lines[4] == "all three: refuted"
    assert certify([np.ones((1, 1), dtype=bool)]).text().startswith("1 pattern on 1 token, 1 entry; order 1,")
    loaded = json.loads(certificate.to_json())
    fields = [loaded[name] for name in ("n_tokens", "n_patterns", "n_entries", "repeat", "order", "outcome")]
    assert fields == [16, 3, [64, 76, 76], False, [1, 2, 3], "refuted"]
    assert [finding.pop("name") for finding in loaded["findings"]] == list(NAMES.values())
    assert loaded["findings"] == [vars(finding) for finding in certificate.findings]


def test_draws_count_each_outcome_apart():
    full, empty, hard = np.ones((10, 10), dtype=bool), np.zeros((10, 10), dtype=bool), three_triangles()
    report = certify_draws(([pattern] for pattern in [full] * 5 + [empty] * 3 + [hard] * 2), time_limit=0)
    assert report.conditions == (Estimate(7, 10), Estimate(5, 10, 2), Estimate(7, 10))
    assert report.together == Estimate(5, 10, 2)
    orders = ((1, 2, 3), (3, 2, 1), None)
    once = [certify_draws([three_patterns(16, 4)] * 2, order, repeat=False).together.hits for order in orders]
    assert once == [0, 2, 0]
