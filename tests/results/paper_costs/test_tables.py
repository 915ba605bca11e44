"""The paper's tables beside ours, and the file and page that hold them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from results.paper_costs.claims import TABLE_3
from results.paper_costs.growth import compare_with_claims
from results.paper_costs.tables import paper_table
from sbmt.experiments.costs import DENSITIES, METHODS, REFERENCE, cost_report

ROOT = Path(__file__).parents[3]
RESULT = json.loads((ROOT / "results" / "costs.json").read_text("utf-8"))


def test_the_papers_table_stands_beside():
    for place, kind in enumerate(("flops", "memory")):
        table = paper_table(kind)
        assert [tuple(map(float, row[1:])) for row in table.rows] == [both[place] for both in TABLE_3.values()]


def test_the_results_file_holds_what_is_counted_today():
    again = cost_report(has_memory=False)
    again["claims"] = {name: asdict(verdict) for name, verdict in compare_with_claims().items()}
    again["paper"] = {name: {"flops": flops, "memory": memory} for name, (flops, memory) in TABLE_3.items()}
    again = json.loads(json.dumps(again))
    assert {name: RESULT[name] for name in again} == again
    assert set(RESULT) == {*again, "memory", "slopes", "manifest"}


def test_the_results_file_holds_a_peak_of_every_method_and_column():
    assert set(RESULT["memory"]) == set(METHODS)
    assert all("forward" in one for mine in RESULT["memory"].values() for one in mine)
    for name, mine in RESULT["memory"].items():
        for one, wanted in zip(mine, DENSITIES.values(), strict=True):
            if METHODS[name].draws_mask:
                assert one["density"] == pytest.approx(wanted, rel=0.15)
    assert RESULT["memory"][REFERENCE][2]["forward"] > RESULT["memory"]["sbm"][2]["forward"]
