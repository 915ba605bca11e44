"""Table 3's layout, the results file and the page."""

import json
import runpy
from dataclasses import asdict
from pathlib import Path

import pytest

from sbmt import SbmtError
from sbmt.cost import report as report_module
from sbmt.cost import scaling
from sbmt.cost.claims import DENSITIES, TABLE_3, TASKS
from sbmt.cost.methods import METHODS, REFERENCE, Case
from sbmt.cost.report import columns_of, cost_report, count_case, paper_columns
from sbmt.cost.scaling import PRODUCTS, measure_products
from sbmt.cost.slopes import Verdict, compare_with_claims
from sbmt.cost.tables import LEFT_OUT, cost_tables, paper_table, parts_table, slope_table

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "results" / "costs.json").read_text("utf-8"))
SCRIPT = runpy.run_path(str(ROOT / "results" / "measure_costs.py"))


@pytest.fixture(scope="module")
def counted():
    return cost_report(has_memory=False)


def test_columns_are_the_papers_tasks():
    columns = paper_columns()
    assert [column.task for column in columns] == list(TASKS)
    assert [column.n for column in columns] == [2048, 3072, 4096, 1024, 1024]
    assert [column.density for column in columns] == list(DENSITIES.values())


def test_ratios_by_hand(counted):
    """n = 2048, d = 32, k = 256 or 128: products over 4 n² d, of one head of one layer."""
    full = 4 * 2048**2 * 32
    by_hand = {
        "full": full,
        "linear": 4 * 2048 * 32**2,
        "linformer": 8 * 2048 * 256 * 32,
        "performer": 8 * 2048 * 256 * 32,
        "reformer": 2 * (2 * 2048 * 64 * 32 + 8 * 2048 * 32 * 32),
        "sbm-algorithm-1": 8 * 2048 * 32**2 + 4 * 2048 * 128 * 32 + 2 * 128**2 * 32 + 2 * 128**2 + 2 * 128,
    }
    edges = 4 * 32 * round(0.0115 * 2 * 2048**2) * 2
    for name, one in by_hand.items():
        whole = 4 * one + (edges if name == "sbm-algorithm-1" else 0)
        assert counted["operations"][name][0]["attention"]["n_flops"] == whole, name


def test_a_pair_of_documents_costs_twice_what_one_does(counted):
    pair = counted["operations"]["linear"][TASKS.index("retrieval")]["attention"]
    one = count_case(Case("linear", 4096, 0.1)).attention()
    assert pair["n_flops"] == 2 * one.n_flops


def test_tables_are_rectangular_and_relative(counted):
    attention, model = cost_tables(counted)
    for table in (attention, model):
        assert {len(row) for row in table.rows} == {len(table.headings)} == {6}
        assert table.rows[0] == ("full attention", *["1.00"] * 5)
        assert len(table.rows) == len(METHODS) - 1  # a fused kernel does the same operations
    shares = [float(row[1]) for row in attention.rows]
    assert shares[1:] != sorted(shares[1:])
    assert all(float(a[1]) <= float(m[1]) for a, m in zip(attention.rows, model.rows, strict=True) if a[1] < "1.00")


def test_memory_is_measured_once_for_alike_inputs(monkeypatch):
    asked, done = [], []

    def peaks(cases):
        asked.append(list(cases))
        return [{"forward": float(case.n), "before": 1.0, "density": None} for case in cases]

    monkeypatch.setattr(report_module, "peak_memory", peaks)
    found = cost_report(["sbm"], on_method=lambda *call: done.append(call))
    assert done == [(0, 2), (1, 2), (2, 2)]
    assert [len(cases) for cases in asked] == [4, 5]  # Image and Pathfinder are alike where no mask is drawn
    assert [one["forward"] for one in found["memory"]["full"]] == [2048, 3072, 4096, 1024, 1024]
    *_, memory = cost_tables(found)
    assert memory.rows == (
        (METHODS["full"].title, *["1.00"] * 5),
        (METHODS["sbm"].title, *["1.00"] * 5),
    )


def test_what_cannot_be_measured_is_left_out_and_told(monkeypatch):
    monkeypatch.setattr(report_module, "peak_memory", lambda cases: [{"missing": "no room"}] * len(cases))
    *_, table = cost_tables(cost_report(["linear"], columns_of([64], 0.1)))
    assert {row[1] for row in table.rows} == {LEFT_OUT}
    assert table.notes == (f"{METHODS['full'].title}: no room", "linear: no room")
    monkeypatch.setattr(scaling, "peak_memory", lambda cases: [{"missing": "no room"}] * len(cases))
    slopes = slope_table([], [scaling.measure_memory(scaling.MEMORY[0])])
    assert slopes.notes == ("no room",)
    assert slopes.rows[0][-2:] == (LEFT_OUT, LEFT_OUT)


@pytest.mark.bad_input
def test_bad_requests_are_refused():
    with pytest.raises(SbmtError, match="attention among"):
        cost_report(["flash"])
    with pytest.raises(SbmtError, match="at least one column"):
        cost_report(columns=[])


def test_parts_of_layers_are_gathered():
    count = count_case(Case("sbm", 64, 0.1))
    table = parts_table(count, "title")
    times = {row[0]: row[1] for row in table.rows}
    assert times["MLP"] == "2 ×"
    assert times["head"] == "1 ×"
    *rows, last = table.rows
    assert sum(int(row[3].replace(",", "")) for row in rows) == count.n_flops == int(last[3].replace(",", ""))
    assert sum(int(row[6].replace(",", "")) for row in rows) == count.n_elementwise


def test_the_papers_table_stands_beside():
    for place, kind in enumerate(("flops", "memory")):
        table = paper_table(kind)
        assert [tuple(map(float, row[1:])) for row in table.rows] == [both[place] for both in TABLE_3.values()]


def test_the_results_file_holds_what_is_counted_today(counted):
    again = json.loads(json.dumps(counted))
    assert {name: RESULT[name] for name in again} == again
    assert set(RESULT) == {*again, "memory", "claims", "slopes", "manifest"}
    verdicts = {name: Verdict.from_dict(one) for name, one in RESULT["claims"].items()}
    assert verdicts == compare_with_claims()
    assert asdict(verdicts["full"])["claimed"] == "n²·d"
    for sweep, found in zip(PRODUCTS[:3], RESULT["slopes"]["products"], strict=False):
        assert json.loads(json.dumps(measure_products(sweep))) == found


def test_the_results_file_holds_a_peak_of_every_method_and_column():
    assert set(RESULT["memory"]) == set(METHODS)
    assert all("forward" in one for mine in RESULT["memory"].values() for one in mine)
    for name, mine in RESULT["memory"].items():
        for one, wanted in zip(mine, DENSITIES.values(), strict=True):
            if METHODS[name].draws_mask:
                assert one["density"] == pytest.approx(wanted, rel=0.15)
    assert RESULT["memory"][REFERENCE][2]["forward"] > RESULT["memory"]["sbm"][2]["forward"]


def test_the_page_is_fresh():
    text = (ROOT / "docs" / "api" / "cost.md").read_text("utf-8")
    blocks = SCRIPT["blocks"](RESULT)
    assert SCRIPT["with_blocks"](text, blocks) == text
    for name, block in blocks.items():
        assert (
            text.count(f"<!-- costs {name}: results/measure_costs.py -->\n{block}\n<!-- end of costs {name} -->") == 1
        )
