"""Tests that suites are planned, measured, resumed, and shown in tables."""

import json

import pytest
import torch

from results.lookup import ROOT
from sbmt import SbmtError
from sbmt.experiments.benchmarks import suites
from sbmt.experiments.benchmarks.cases import UNTRAINED, build, fitted_setting
from sbmt.experiments.benchmarks.suites import run_suites
from sbmt.experiments.benchmarks.tables import tables_of
from sbmt.experiments.files import read_json, write_json
from tests.experiments.benchmarks.tiny import use_tiny_grids

QUICK, RACE = {"is_quick": True}, {"seconds": 0.001, "least": 3, "most": 3}


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_grids(patch)
        return run_suites(**QUICK)


def check(tables):
    for table in tables:
        assert table.row_count, table.title
        assert all(cell for column in table.columns for cell in column.cells), table.title


def test_a_setting_that_sweeps_share_is_measured_once_and_shown(result):
    for suite in ("attention", "fitted"):
        cases = result["suites"][suite]["found"]["cases"]
        assert [case["is_training"] for case in cases] == [False, True] and len(cases[0]["sweeps"]) == 2
        assert cases[0]["dtype"] == "float32" and cases[0]["results"]["sdpa"]["ratio"] == 1.0
        assert list(cases[0]["results"]) == ["sdpa", "sbm"]
    tables = tables_of(json.loads(json.dumps(result, allow_nan=False)))
    assert len(tables) == 4 and result["manifest"]["processor"]
    check(tables)
    assert [column.header for column in tables[1].columns] == ["SDPA ms", "SDPA MiB", "SBM ms", "SBM / SDPA", "SBM MiB"]
    assert tables[1].title.startswith("Training step") and tables[2].title.startswith("Forward")
    assert "memberships = fitted; heads = 4 × 32; n = 64" in tables[2].title


@pytest.mark.parametrize("file", ["bench", "bench_fitted"])
def test_published_files_have_tables(file):
    check(tables_of(json.loads((ROOT / "results" / f"{file}.json").read_text("utf-8"))))


def test_a_gpu_measures_fitted_masks_at_three_lengths_and_two_shapes():
    plan = suites.plan_cases(suites.ON_GPU["fitted"], False, "cuda")
    points = [(n, keys, way) for keys in (16, 32) for n in (4096, 16384, 65536) for way in (False, True)]
    for shape, kind, mine in (((4, 32), "fitted", plan[:12]), ((8, 64), UNTRAINED, plan[12:])):
        assert [(s.n, s.n * s.density, about["is_training"]) for s, about in mine] == points
        assert {(about["n_heads"], about["d_head"]) for _, about in mine} == {shape}
        assert {(about["kind"], about["dtype"]) for _, about in mine} == {(kind, "bfloat16")}
    assert suites.ON_GPU["attention"] == suites.SUITES["attention"]


def stopped(*_, **__):
    raise KeyboardInterrupt


def compared(case, is_training, names, **limits):
    return {"sdpa": {"missing": f"{case.setting.kind} {is_training}"}}


@pytest.fixture
def begun(monkeypatch, tmp_path):
    """Writes a results file with three of four cases, as if the last one was interrupted."""
    use_tiny_grids(monkeypatch)
    measure = iter([compared] * 3 + [stopped])
    monkeypatch.setattr(suites, "compare", lambda *given, **limits: next(measure)(*given))
    with pytest.raises(KeyboardInterrupt):
        run_suites(**QUICK, path=tmp_path / "bench.json")
    return tmp_path / "bench.json"


def cases_of(result):
    return [case for suite in result["suites"].values() for case in suite["found"]["cases"]]


def test_an_interrupted_benchmark_is_resumed(begun, monkeypatch):
    before = cases_of(json.loads(begun.read_text()))
    assert [case["is_training"] for case in before] == [False, True, False]
    monkeypatch.setattr(suites, "compare", compared)
    result = run_suites(**QUICK, path=begun)
    assert result == read_json(begun, has_checksum=True) and list(result["suites"]) == ["attention", "fitted"]
    assert cases_of(result)[:3] == before and cases_of(result)[3]["results"] == {"sdpa": {"missing": "fitted True"}}
    written = begun.read_bytes()
    monkeypatch.setattr(suites, "compare", stopped)
    assert run_suites(**QUICK, path=begun) == result and begun.read_bytes() == written


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "change", "words"),
    [
        ({"names": ["speed"]}, {}, "suite to be one of 'attention'"),
        ({"device": "tpu"}, {}, "device to be one of 'cpu', 'cuda'"),
        ({"is_quick": False}, {}, "is_quick is False, the file has True"),
        ({}, {'"threads": ': '"threads": 1'}, r"threads is \d+, the file has 1\d"),
        ({"names": ["attention"]}, {}, r"suites is \['attention'\], the file has \['attention', 'fitted'\]"),
        ({}, {'"cpu"': '"cuda"'}, "device is cpu, the file has cuda"),
        ({}, {"Linux": "Darwin"}, "machine is Linux .*, the file has Darwin"),
        ({}, {'"n": 128': '"n": 256', "0.05": "0.04"}, "n is 128, the file has 256, density is 0.05, the file has"),
    ],
)
def test_bad_requests_and_files_of_other_settings_are_refused(begun, arguments, change, words):
    text = json.dumps(read_json(begun, has_checksum=True))
    for old, new in change.items():
        text = text.replace(old, new)
    write_json(begun, json.loads(text), has_checksum=True)
    text = begun.read_text()
    with pytest.raises(SbmtError, match=words):
        run_suites(**QUICK | {"path": begun} | arguments)
    assert begun.read_text() == text
    write_json(begun, {"suites": {}})
    with pytest.raises(SbmtError, match="wrong checksum"):
        run_suites(**QUICK, path=begun)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU captures graphs")
def test_what_does_not_run_is_a_finding(monkeypatch):
    """Without a GPU, no graph is captured, and no other contestant is affected."""

    def attend(case):
        raise RuntimeError("no kernel\nof this kind")

    monkeypatch.setitem(suites.CONTESTANTS, "flex", attend)
    case = build(fitted_setting(64, 8))
    found = suites.compare(case, False, ["flex", "sdpa", "sbm", "sbm-graph"], **RACE)
    assert found["flex"] == {"missing": "does not run here: RuntimeError: no kernel"}
    assert found["sbm-graph"]["missing"].startswith("does not run here: ")
    assert found["sbm"]["rounds"] == 3 and found["sbm"]["ratio"] > 0 and found["sdpa"]["ratio"] == 1
    assert list(suites.compare(case, True, ["sbm", "sbm-graph"], **RACE)) == ["sbm"]  # graphs are for forward passes
    monkeypatch.setattr(suites, "MOST_TOKENS", 63)
    found = suites.compare(case, False, ["sdpa", "sbm"], **RACE)
    assert found["sdpa"] == {"missing": "left out above 63 tokens"}
    assert found["sbm"].keys() - {"peak"} == {"median", "low", "high", "rounds"}  # there is no reference for a ratio


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("is_training", [False, True])
def test_all_contestants_run_on_a_gpu(is_training):
    case = build(fitted_setting(256, 8, 8, 64), device="cuda", dtype=torch.bfloat16)
    found = suites.compare(case, is_training, suites.CONTESTANTS | suites.GRAPHS, **RACE)
    assert not [one["missing"] for one in found.values() if "missing" in one]
    contestants = ["sdpa", "sbm", "flex", "compiled"]
    assert list(found) == contestants + [f"{name}-graph" for name in ("sdpa", "sbm", "compiled") if not is_training]
    assert all(one["median"] > 0 for one in found.values())
    assert {name for name, one in found.items() if "peak" in one} == set(contestants)
