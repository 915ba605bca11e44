import json
import sys

import pytest

from results.lookup import ROOT
from sbmt import SbmtError
from sbmt.experiments.benchmarks import attention, memory, run_suites, tables_of
from sbmt.experiments.benchmarks.cases import Setting
from sbmt.experiments.tables import LEFT_OUT
from tests.experiments.benchmarks.tiny import use_tiny_grids


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_grids(patch)
        patch.setenv("OMP_WAIT_POLICY", "PASSIVE")
        return run_suites(["attention", "fitted", "backends"], is_quick=True, threads=1)


def check(table):
    assert table.rows, table.name
    assert {len(row) for row in table.rows} == {len(table.headings)}, table.name
    assert all(cell for row in table.rows for cell in row), table.name


def test_a_result_survives_json_and_its_tables_are_rectangular_and_filled(result):
    again = json.loads(json.dumps(result, allow_nan=False))
    tables = {table.name: table for table in tables_of(again)}
    assert list(tables.values()) == tables_of(result)
    assert {"attention-n-training", "fitted-keys-forward", "backends-loss"} <= set(tables)
    for table in tables.values():
        check(table)
    assert result["manifest"]["OMP_WAIT_POLICY"] == "PASSIVE" and result["manifest"]["processor"]


@pytest.mark.parametrize("file", ["bench", "bench_fitted", "gpu/bench"])
def test_published_files_have_tables(file):
    for table in tables_of(json.loads((ROOT / "results" / f"{file}.json").read_text("utf-8"))):
        check(table)


def test_a_setting_that_sweeps_share_is_measured_once(result):
    cases = result["suites"]["attention"]["found"]["cases"]
    assert [(case["n"], case["is_training"]) for case in cases] == [(128, False), (128, True)]
    assert cases[0]["sweeps"] == ["density", "n"] and cases[0]["results"]["sdpa"]["ratio"] == 1.0
    fitted = result["suites"]["fitted"]["found"]["cases"]
    assert [(case["n"], case["dtype"], *case["sweeps"]) for case in fitted[::2]] == [(64, "float32", "n", "keys")]


def test_quick_sweeps_are_short():
    for sweeps in attention.SWEEPS.values():
        for name, sweep in attention.quick(sweeps).items():
            kinds = {setting.kind for setting in sweep}
            assert max(setting.n for setting in sweep) <= 4096 and 0 < len(sweep) <= 2 * len(kinds)
            assert set(sweep) <= set(sweeps[name])


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"names": ["speed"]}, "suite among 'attention'"),
        ({"threads": 0}, "threads ≥ 1"),
        ({"threads": 5000}, "at most 1024 threads"),
        ({"device": "tpu"}, "device among 'cpu', 'cuda'"),
        ({"names": ["memory"], "device": "cuda"}, "a suite of --device cuda"),
    ],
)
def test_bad_requests_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        run_suites(**arguments)


def test_the_automatic_choice_is_judged_by_the_best(result):
    [loss] = [table for table in tables_of(result) if table.name == "backends-loss"]
    assert all(float(x) >= 1 for x in loss.rows[0][1:])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process holds")
def test_memory_is_measured_in_a_process_of_its_own():
    large, small = (Setting(n, density, "structured") for n, density in ((65536, 0.0005), (512, 0.04)))
    found = memory.run([large, small], ["dense"])
    left_out, step = (case["results"]["dense"] for case in found["cases"])
    assert "left out above" in left_out["missing"]
    assert step["step"] > 4 * 512**2 * 4 / 2**20  # the scores of four heads in float32
    assert step["before"] > 50
    [table] = tables_of({"suites": {"memory": {"found": found}}})
    assert [row[-1] == LEFT_OUT for row in table.rows] == [False, True] and "left out above" in table.notes[0]
