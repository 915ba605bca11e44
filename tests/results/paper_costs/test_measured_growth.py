"""Log-log slopes of what is measured: torch's count of products, and peak memory in fresh processes."""

import sys
from dataclasses import replace

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
from sbmt.experiments.costs.memory import peak_memory


def name(sweep):
    return f"{sweep.method}-{sweep.symbol}"


@pytest.mark.parametrize("sweep", PRODUCTS, ids=name)
def test_products_grow_like_the_count_far_out(sweep):
    """These sizes are where one term rules, so the slope is that term's exponent."""
    found = measure_products(sweep)
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


ENDS = [
    # the smallest size and the largest, except of clusters alone, of which the largest number would take ten seconds
    replace(sweep, values=(sweep.values[0], sweep.values[1 if sweep.base["n"] == 64 else -1]))
    for sweep in MEMORY
    if sweep.method != "sbm-algorithm-1" or sweep.symbol == "n"
]


@pytest.fixture(scope="module")
def peaks():
    """By case: what all of them need, in one fresh process."""
    cases = [case for sweep in ENDS for case in sweep.cases()]
    return dict(zip(map(repr, cases), peak_memory(cases), strict=True))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
@pytest.mark.parametrize("sweep", ENDS, ids=name)
def test_memory_grows_no_faster_than_claimed(sweep, peaks, monkeypatch):
    """Between two sizes; what the site quotes is measured at more of them."""
    monkeypatch.setattr(measured_growth, "peak_memory", lambda cases: [peaks[repr(case)] for case in cases])
    found = measure_memory(sweep)
    if (sweep.method, sweep.symbol) == ("reformer", "n"):
        assert found["slope"] > 1.7  # hashing in one step keeps n² / chunk numbers, against the claim
    elif sweep.method == "full-fused":
        assert found["slope"] == pytest.approx(1, abs=0.1)  # the fused kernel keeps no scores
    elif (sweep.method, sweep.symbol) == ("linformer", "k"):
        assert found["slope"] < 0.2  # nor those over mixtures
    else:
        assert found["slope"] < found["claimed"] + 0.1
        assert found["slope"] > found["claimed"] - 0.35
