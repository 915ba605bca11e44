import json

import pytest
import torch

from results.lookup import ROOT
from sbmt import SbmtError
from sbmt.experiments.benchmarks import run_suites, suites, tables_of
from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.timing import Pace
from tests.experiments.benchmarks.tiny import use_tiny_grids


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_grids(patch)
        return run_suites(is_quick=True, threads=1)


def check(table):
    assert table.rows, table.name
    assert {len(row) for row in table.rows} == {len(table.headings)}, table.name
    assert all(cell for row in table.rows for cell in row), table.name


def test_a_result_survives_json_and_its_tables_are_rectangular_and_filled(result):
    again = json.loads(json.dumps(result, allow_nan=False))
    tables = {table.name: table for table in tables_of(again)}
    assert list(tables.values()) == tables_of(result)
    assert {"attention-n-training", "fitted-keys-forward"} <= set(tables)
    for table in tables.values():
        check(table)
    assert result["manifest"]["processor"]


@pytest.mark.parametrize("file", ["bench", "bench_fitted"])
def test_published_files_have_tables(file):
    for table in tables_of(json.loads((ROOT / "results" / f"{file}.json").read_text("utf-8"))):
        check(table)


def test_a_setting_that_sweeps_share_is_measured_once(result):
    for suite in ("attention", "fitted"):
        cases = result["suites"][suite]["found"]["cases"]
        assert [case["is_training"] for case in cases] == [False, True] and len(cases[0]["sweeps"]) == 2
        assert cases[0]["dtype"] == "float32" and cases[0]["results"]["sdpa"]["ratio"] == 1.0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"names": ["speed"]}, "suite to be one of 'attention'"),
        ({"threads": 0}, "1 to 1024 threads"),
        ({"device": "tpu"}, "device to be one of 'cpu', 'cuda'"),
    ],
)
def test_bad_requests_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        run_suites(**arguments)


def test_what_does_not_run_is_a_finding(monkeypatch):
    def raising(error):
        def attend(case):
            raise error

        return attend

    monkeypatch.setitem(suites.CONTESTANTS, "sdpa", raising(RuntimeError("no kernel")))
    monkeypatch.setitem(suites.CONTESTANTS, "pyg", raising(torch.OutOfMemoryError("CUDA out of memory.")))
    case = build(Setting(2100, 0.01, "structured", n_clusters=8))
    found = suites.compare(case, True, ["sdpa", "sbm", "pyg", "dense"], Pace(0.001, 3, 3))
    assert found["sbm"].keys() - {"peak"} == {"median", "low", "high", "rounds"}  # nothing to be a ratio of
    assert found["pyg"] == {"missing": "out of memory"}
    assert "no kernel" in found["sdpa"]["missing"] and "left out above" in found["dense"]["missing"]
