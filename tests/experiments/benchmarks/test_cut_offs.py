import math

import pytest

from sbmt.experiments.benchmarks.cut_offs import cut_offs, quotient, wins_from
from sbmt.experiments.benchmarks.gpu_tables import gpu_tables


def case(density, times, *, n=4096, kind="structured", is_training=True):
    """A case whose times are given; None is left out, "?" failed."""
    results = {
        name: {"missing": "out of memory"} if x is None else {"failed": "no"} if x == "?" else {"median": x}
        for name, x in times.items()
    }
    return {"kind": kind, "n": n, "density": density, "is_training": is_training, "results": results}


def test_a_law_of_known_crossings_is_found():
    """Edges cost 100 d, tiles 2 + 10 d, the reference 3: they cross at 2/90 and at 3/100."""
    densities = (0.001, 0.01, 0.02, 0.025, 0.1, 0.5)
    cases = [case(d, {"sdpa": 3.0, "sparse": 100 * d, "tiled": 2 + 10 * d}) for d in reversed(densities)]
    [found] = cut_offs(cases)
    assert (found["kind"], found["n"], found["is_training"]) == ("structured", 4096, True)
    tiled, sdpa = found["tiled_beats_sparse"], found["sdpa_beats_sparse"]
    assert (tiled["before"], tiled["first"]) == (0.02, 0.025)
    assert tiled["at"] == pytest.approx(2 / 90, rel=0.01)
    assert (sdpa["before"], sdpa["first"]) == (0.025, 0.1)
    assert sdpa["at"] == pytest.approx(0.03, rel=0.01)


def test_each_n_kind_and_way_has_its_own():
    times = {"sdpa": 1.0, "sparse": 2.0, "tiled": 1.0}
    cases = [case(0.1, times, n=n, is_training=way) for n in (1024, 4096) for way in (False, True)]
    found = cut_offs(cases)
    assert [(one["n"], one["is_training"]) for one in found] == [
        (1024, False),
        (1024, True),
        (4096, False),
        (4096, True),
    ]
    assert all(one["tiled_beats_sparse"] == {"before": None, "first": 0.1, "at": None} for one in found)


@pytest.mark.parametrize(
    ("quotients", "expected"),
    [
        ([], (None, None, None)),
        ([(0.1, 2.0), (0.2, 1.0)], (0.2, None, None)),
        ([(0.1, 0.5), (0.2, 0.4)], (None, 0.1, None)),
        ([(0.1, 0.9), (0.2, 1.1), (0.4, 0.5)], (0.2, 0.4, 0.22)),  # a win that does not last does not count
        ([(0.1, 2.0), (0.2, 0.0)], (0.1, 0.2, None)),  # the other one ran out of memory: it is not known where between
        ([(0.1, math.inf), (0.2, 0.5)], (0.1, 0.2, None)),
    ],
)
def test_where_a_win_begins(quotients, expected):
    found = wins_from(quotients)
    assert (found["before"], found["first"]) == expected[:2]
    assert found["at"] == (None if expected[2] is None else pytest.approx(expected[2], rel=0.02))


def test_who_alone_fits_wins_and_failures_say_nothing():
    results = case(0.1, {"sparse": None, "tiled": 2.0, "sdpa": "?"})["results"]
    assert quotient(results, "tiled", "sparse") == 0.0
    assert quotient(results, "sparse", "tiled") == math.inf
    assert quotient(results, "sdpa", "tiled") is None
    assert quotient(results, "sparse", "sdpa") is None
    assert quotient(results, "auto", "tiled") is None


def test_ratios_of_the_same_rounds_are_preferred():
    results = {"sparse": {"median": 4.0, "ratio": 2.0}, "tiled": {"median": 9.0, "ratio": 3.0}}
    assert quotient(results, "sparse", "tiled") == pytest.approx(2 / 3)


def test_the_table_says_from_where_or_never():
    cases = [case(d, {"sdpa": 9.0, "sparse": 100 * d, "tiled": None if d > 0.03 else 2.0}) for d in (0.01, 0.025, 0.08)]
    nothing = {"cases": [], "profiles": {}, "left_out": [], "failures": [], "lost": []}
    [table] = gpu_tables(nothing | {"cut_offs": cut_offs(cases)})
    assert table.rows == (("structured", "4,096", "training", "never", "–", "never", "–"),)
