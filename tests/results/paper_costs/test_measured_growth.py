"""Log-log slopes of what is measured: torch's count of products, and peak memory in fresh processes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from results.paper_costs import measured_growth
from results.paper_costs.growth import counted_formula
from results.paper_costs.measured_growth import (
    MEMORY,
    PRODUCTS,
    Sweep,
    attention_flops,
    claim_of,
    measure_memory,
    measure_products,
)
from sbmt.experiments.costs import peak_memory

RESULT = json.loads((Path(__file__).parents[3] / "results" / "costs.json").read_text("utf-8"))


def name(sweep):
    return f"{sweep.method}-{sweep.symbol}"


@pytest.mark.parametrize("sweep", PRODUCTS, ids=name)
def test_products_grow_like_the_count_far_out(sweep):
    """These sizes are where one term rules, so the slope is that term's exponent."""
    found = measure_products(sweep)
    assert found == RESULT["slopes"]["products"][PRODUCTS.index(sweep)]
    exponent = counted_formula(sweep.method).degree(sweep.symbol)
    if (sweep.method, sweep.symbol) == ("reformer", "n"):
        assert 1.5 < found["slope"] < 2.0  # on the way from 1 to 2: hashing against chunks
    else:
        assert found["slope"] == pytest.approx(exponent, abs=0.05)
        assert found["slope"] < claim_of(sweep.method).time.degree(sweep.symbol) + 0.01


def test_the_sweeps_look_at_every_claim():
    seen = {(sweep.method, sweep.symbol) for sweep in PRODUCTS}
    claims = {"full": "nd", "linear": "nd", "performer": "nkd", "linformer": "nkd", "nystromformer": "nkd"}
    assert {(method, symbol) for method, symbols in claims.items() for symbol in symbols} <= seen
    assert {("sbm-algorithm-1", symbol) for symbol in "nkd"} <= seen


def test_masks_have_the_edges_that_are_asked_for():
    sweep = Sweep("sbm", "m", (200, 400), {"n": 100, "k": 4, "d": 4})
    assert [case.density for case in sweep.cases()] == [0.02, 0.04]
    grows = Sweep("sbm", "n", (100, 200), {"n": 1, "k": 4, "d": 4})
    assert [case.density * case.n for case in grows.cases()] == [64, 64]
    assert attention_flops(sweep.cases()[0]) == attention_flops(sweep.cases()[1])  # compiled kernels are unseen


def check_memory(sweep, found):
    if (sweep.method, sweep.symbol) == ("reformer", "n"):
        assert found["slope"] > 1.7  # hashing in one step keeps n² / chunk numbers, against the claim
    elif sweep.method == "full-fused":
        assert found["slope"] == pytest.approx(1, abs=0.1)  # the fused kernel keeps no scores
    elif (sweep.method, sweep.symbol) == ("linformer", "k"):
        assert found["slope"] < 0.2  # nor those over mixtures
    else:
        assert found["claimed"] - 0.35 < found["slope"] < found["claimed"] + 0.1


def test_published_memory_grows_no_faster_than_claimed():
    for sweep, found in zip(MEMORY, RESULT["slopes"]["memory"], strict=True):
        assert (found["method"], found["symbol"], found["values"]) == (sweep.method, sweep.symbol, list(sweep.values))
        check_memory(sweep, found)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_memory_still_grows_with_the_length_as_published(monkeypatch):
    """From the smallest size to the largest, all in one fresh process."""
    some = [one for one in MEMORY if one.symbol == "n" and one.method in ("full", "linear", "reformer", "sbm")]
    sweeps = [replace(one, values=(one.values[0], one.values[-1])) for one in some]
    cases = [case for sweep in sweeps for case in sweep.cases()]
    peaks = dict(zip(map(repr, cases), peak_memory(cases), strict=True))
    monkeypatch.setattr(measured_growth, "peak_memory", lambda cases: [peaks[repr(case)] for case in cases])
    for sweep in sweeps:
        check_memory(sweep, measure_memory(sweep))
