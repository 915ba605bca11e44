"""Compares the paper's tables of costs with our counts."""

import json
import tomllib
from math import floor

import numpy as np
from scipy.optimize import linprog

from results.lookup import load
from results.measure.common import RESULTS
from sbmt.cost import evaluate
from sbmt.experiments.costs import DENSITIES, METHODS, REFERENCE, cost_report
from sbmt.experiments.training.tasks import PAPER as SETTINGS

PAPER = tomllib.loads((RESULTS / "paper_costs.toml").read_text("utf-8"))
FLOPS = {name: dict(zip(DENSITIES, row["flops"], strict=True)) for name, row in PAPER["table_3"].items()}


def ratio(name, n):
    sizes = {"n": n, "d": 32, "k": 256}
    return evaluate(PAPER["reconstructed"][name], sizes) / evaluate(PAPER["reconstructed"]["full"], sizes)


def test_three_rows_of_table_3_come_out_to_the_digit():
    for name in ("linear", "linformer", "nystromformer"):
        for n, printed in zip((2048, 3072, 2048, 1024, 1024), FLOPS[name].values(), strict=True):
            assert floor(100 * ratio(name, n)) / 100 == printed, (name, n)


def test_table_3_and_table_5_disagree_about_sbm():
    """No costs a ≥ 0 per token, b ≥ 0 per head and c ≥ 0 per edge fit three of the five FLOPs, with any rounding."""
    tasks = ("listops", "text", "image")
    lengths = [1024 / SETTINGS[task].length for task in tasks]
    rows = np.array([[x, x**2, DENSITIES[task]] for x, task in zip(lengths, tasks, strict=True)])
    printed = np.array([FLOPS["sbm-algorithm-1"][task] for task in tasks])
    low, high = printed - 0.005, printed + 0.01  # rounded or truncated

    def status(chosen):
        bounds = [*high[chosen], *-low[chosen]]
        return linprog([0, 0, 0], A_ub=np.concatenate([rows[chosen], -rows[chosen]]), b_ub=bounds).status

    assert status(slice(None)) == 2  # infeasible
    assert status(slice(1, None)) == 0  # two of them fit


def test_the_result_file_holds_what_is_counted_today():
    """``sbmt cost --json FILE`` writes the counts. Memory was measured at commit a9f0fe7."""
    again = cost_report() | {"paper": PAPER["table_3"]}
    again, published = json.loads(json.dumps(again)), load("costs")
    assert {name: published[name] for name in again} == again
    assert set(published["memory"]) == {*METHODS, "full-fused"}
    assert published["memory"][REFERENCE][2]["forward"] > published["memory"]["sbm"][2]["forward"]
