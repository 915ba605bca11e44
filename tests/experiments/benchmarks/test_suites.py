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


def stopped(*_):
    raise KeyboardInterrupt


def compared(case, is_training, names, pace):
    return {"sdpa": {"missing": str(is_training)}}


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """A results file with two of four cases; the next setting was interrupted."""
    use_tiny_grids(monkeypatch)
    measure = iter([compared] * 3 + [stopped])
    monkeypatch.setattr(suites, "compare", lambda *given: next(measure)(*given))
    with pytest.raises(KeyboardInterrupt):
        run_suites(is_quick=True, threads=1, path=tmp_path / "bench.json")
    return tmp_path / "bench.json"


def cases_of(result):
    return [case for suite in result["suites"].values() for case in suite["found"]["cases"]]


def test_an_interrupted_benchmark_is_resumed(begun, monkeypatch):
    before, lines = cases_of(json.loads(begun.read_text())), []
    assert [case["is_training"] for case in before] == [False, True]
    monkeypatch.setattr(suites, "compare", compared)
    result = run_suites(is_quick=True, threads=1, path=begun, say=lines.append)
    assert lines == [f"2 of 4 cases are in {begun} already."]
    assert result == json.loads(begun.read_text()) and list(result["suites"]) == ["attention", "fitted"]
    assert cases_of(result)[:2] == before and cases_of(result)[3]["results"] == {"sdpa": {"missing": "True"}}
    written = begun.read_bytes()
    monkeypatch.setattr(suites, "compare", stopped)
    assert run_suites(is_quick=True, threads=1, path=begun) == result and begun.read_bytes() == written


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "change", "words"),
    [
        ({"is_quick": False}, {}, "is_quick is False, the file has True"),
        ({"threads": 2}, {}, "threads is 2, the file has 1"),
        ({"names": ["attention"]}, {}, r"suites is \['attention'\], the file has \['attention', 'fitted'\]"),
        ({}, {'"cpu"': '"cuda"'}, "device is cpu, the file has cuda"),
        ({}, {"Linux": "Darwin"}, "machine is Linux .*, the file has Darwin"),
        ({}, {'"n": 128': '"n": 256', "0.05": "0.04"}, "n is 128, the file has 256, density is 0.05, the file has"),
        ({}, {'"cases"': '"case"'}, "cases of found of attention of .* to be of type list"),
        ({}, {'"suites"': '"suite"'}, "suites of .* to be of type dict"),
    ],
)
def test_a_file_of_other_settings_is_refused_and_kept(begun, arguments, change, words):
    text = begun.read_text()
    for old, new in change.items():
        text = text.replace(old, new)
    begun.write_text(text)
    with pytest.raises(SbmtError, match=words):
        run_suites(**{"is_quick": True, "threads": 1, "path": begun} | arguments)
    assert begun.read_text() == text


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
