import json
import sys
from pathlib import Path

import pytest

from sbmt import SbmtError
from sbmt.experiments.benchmarks import attention, memory, sampler
from sbmt.experiments.benchmarks.attention import run
from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.suites import TABLES, run_suites, tables_of
from sbmt.experiments.benchmarks.tables import fitted_tables, gpu_tables
from sbmt.experiments.tables import LEFT_OUT
from tests.experiments.benchmarks.tiny import gpu_grid, raising, use_tiny_grids

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_grids(patch)
        return run_suites(["attention", "fitted", "sampler", "backends"], is_quick=True, threads=1)


def test_a_result_survives_json_and_its_tables_are_rectangular_and_filled(result):
    again = json.loads(json.dumps(result, allow_nan=False))
    assert tables_of(again) == tables_of(result)
    assert set(again) == {"manifest", "is_quick", "suites"}
    for table in tables_of(result):
        assert table.rows, table.name
        assert {len(row) for row in table.rows} == {len(table.headings)}, table.name
        assert all(cell for row in table.rows for cell in row), table.name


def test_every_published_table_has_its_place_on_the_page():
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for file in ("bench", "bench_fitted"):
        for table in tables_of(json.loads((ROOT / "results" / f"{file}.json").read_text("utf-8"))):
            assert text.count(f"<!-- table {table.name}: make bench -->") == 1


def test_a_setting_that_sweeps_share_is_measured_once(result):
    cases = result["suites"]["attention"]["found"]["cases"]
    assert [(case["n"], case["is_training"]) for case in cases] == [(128, False), (128, True), (64, False), (64, True)]
    assert cases[0]["sweeps"] == ["target", "density", "n"] and cases[0]["results"]["sdpa"]["ratio"] == 1.0
    fitted = result["suites"]["fitted"]["found"]["cases"]
    assert [(case["n"], case["dtype"], *case["sweeps"]) for case in fitted[::2]] == [
        (64, "float32", "n", "keys"),
        (128, "float32", "n"),
        (64, "bfloat16", "bfloat16"),
    ]


def test_a_quick_grid_is_a_small_one():
    quick = attention.GPU.quick()
    assert {setting.n for sweep in quick.sweeps.values() for setting in sweep} <= {1024, 4096}
    assert len(quick.sweeps["gpu"]) == 4 and "flex" not in quick.contestants


def test_all_that_is_asked_for_can_be_built():
    for setting in {(s.kind, s.density): s for s in attention.GPU.sweeps["gpu"] if s.n == 1024}.values():
        model = build(setting).block_model()
        assert model.expected_density().mean().item() == pytest.approx(setting.density, rel=0.1)


def test_growth_is_told_from_long_sequences_alone(result):
    found = result["suites"]["fitted"]["found"]
    assert "fitted-growth" not in {table.name for table in fitted_tables(found)}
    cases = [
        {**case, "n": 64 * case["n"], "results": case["results"] | {"sbm": {"median": case["n"] ** 1.25}}}
        for case in found["cases"]
    ]
    [growth] = [table for table in fitted_tables(found | {"cases": cases}) if table.name == "fitted-growth"]
    assert growth.rows == (("a graph for each head, 4,096 to 8,192 tokens", "1.25"),)


def test_what_does_not_run_is_a_finding():
    kept = []
    found = run(gpu_grid(), on_found=lambda found: kept.append(json.dumps(found["cases"])))
    assert [len(json.loads(cases)) for cases in kept] == [2, 4]
    tables = {table.name: table for table in gpu_tables(json.loads(json.dumps(found, allow_nan=False)))}
    assert set(tables) == {"gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward"}
    shown = tables["gpu-training"]
    assert "2 heads of width 8" in shown.title and "n = 64" in shown.title and "pyg / SDPA" not in shown.headings
    assert all(float(row[shown.headings.index("SBM / SDPA")]) > 0 for row in shown.rows)
    assert shown.notes == ("pyg: out of memory", "flex: does not run here: RuntimeError: Unsupported: x … long story")
    assert {row[-1] for row in tables["gpu-memory-forward"].rows} == {LEFT_OUT}


def test_without_the_reference_there_are_times_alone():
    who = {"sdpa": raising(RuntimeError("no kernel")), "sbm": attention.CONTESTANTS["sbm"]}
    [one, *_] = run(gpu_grid(**who))["cases"]
    assert set(one["results"]["sbm"]) == {"median", "low", "high", "rounds"}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"names": ["speed"]}, "suite among 'attention'"),
        ({"threads": 0}, "threads ≥ 1"),
        ({"threads": 5000}, "at most 1024 threads"),
        ({"device": "tpu"}, "device among 'cpu', 'cuda'"),
        ({"names": ["gpu"]}, "a suite of --device cpu"),
        ({"names": ["memory"], "device": "cuda"}, "a suite of --device cuda"),
    ],
)
def test_bad_requests_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        run_suites(**arguments)


def test_the_manifest_says_what_times_depend_on(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    found = machine_manifest()
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert all(found[name] for name in ("processor", "threads", "torch", "numpy", "scipy", "command"))


def test_a_slope_tells_linear_from_quadratic(result):
    sizes = [4096, 8192, 65536]
    assert sampler.slope(sizes, [3e-4 * n for n in sizes]) == 1.0
    assert sampler.slope(sizes, [n**2 for n in sizes]) == 2.0
    [sweep] = result["suites"]["sampler"]["found"]["scaling"]
    assert {row["n"] for one in sweep["samplers"].values() for row in one["rows"]} == {256, 512}


def test_numpy_draws_the_same_law(make_block_model):
    model = make_block_model(batch=1, heads=1, n_queries=300, n_keys=200)
    [mask] = sampler.by_numpy(model)
    assert mask.shape == (300, 200)
    assert mask.mean() == pytest.approx(model.expected_density().item(), rel=0.1)


def test_the_choice_is_judged_by_the_best(result):
    found = result["suites"]["backends"]["found"]["attention"]
    assert all(cell["auto_over_best"] is None or cell["auto_over_best"] >= 1 for cell in found["cells"])
    assert found["loss"]["worst"] >= found["loss"]["median"] >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process holds")
def test_memory_is_measured_in_a_process_of_its_own():
    large, small = (Setting(n, density, "structured") for n, density in ((65536, 0.0005), (512, 0.04)))
    found = memory.run(steps=[large], answers=[small], contestants=["dense"])
    step, answer = (case["results"]["dense"] for case in found["cases"])
    assert "left out above" in step["missing"]
    assert answer["step"] > 4 * 512**2 * 4 / 2**20  # the scores of four heads in float32
    assert answer["before"] > 50
    steps, answers = TABLES["memory"](found)
    assert [table.rows[0][-1] == LEFT_OUT for table in (steps, answers)] == [True, False]
