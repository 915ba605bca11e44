import json
import sys
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.benchmarks import memory, sampler, suites
from sbmt.experiments.benchmarks.cases import Setting
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.parts import PARTS, WHOLE
from sbmt.experiments.benchmarks.suites import SUITES, Suite, run_suites, tables_of
from sbmt.experiments.benchmarks.tables import fitted_tables
from sbmt.experiments.benchmarks.timing import CPU
from sbmt.experiments.tables import LEFT_OUT
from tests.experiments.benchmarks.tiny import use_tiny_grids

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def result():
    with pytest.MonkeyPatch.context() as patch:
        use_tiny_grids(patch)
        yield run_suites(["attention", "fitted", "sampler", "backends"], is_quick=True, threads=1)


def test_a_result_survives_json_and_its_tables_are_rectangular_and_filled(result):
    again = json.loads(json.dumps(result, allow_nan=False))
    assert tables_of(again) == tables_of(result)
    assert set(again) == {"manifest", "is_quick", "suites"}
    for table in tables_of(result):
        assert table.rows, table.name
        assert {len(row) for row in table.rows} == {len(table.headings)}, table.name
        assert all(cell for row in table.rows for cell in row), table.name


def test_every_table_has_its_place_on_the_page(result):
    others = {"memory", "figure", "machine", "attention-clusters-training"}
    others |= {"attention-clusters-forward", "fitted-growth", "fitted-gain"}
    others |= {"fitted-machine", "fitted-figure", "fitted-memory", "fitted-memory-forward"}
    others |= {"fitted-machines", "attention-machines", "fitted-shared-training", "fitted-shared-forward"}
    others |= {"backends-edge_dot", "backends-edge_gate"}  # measured by an earlier version, as heads that share a graph
    names = {table.name for table in tables_of(result)} | others
    text = PAGE.read_text("utf-8")
    assert all(text.count(f"<!-- table {name}: make bench -->") == 1 for name in names)
    assert text.count(": make bench -->") == len(names)


def test_a_case_says_to_which_sweeps_it_belongs(result):
    cases = result["suites"]["attention"]["found"]["cases"]
    keys = [(case["kind"], case["n"], case["density"], case["n_clusters"], case["is_training"]) for case in cases]
    assert len(keys) == len(set(keys))
    assert {tuple(case["sweeps"]) for case in cases if case["n"] == 128} == {("target", "density", "n")}
    assert len(result["suites"]["attention"]["found"]["parts"]) == 2
    for broken_down in result["suites"]["attention"]["found"]["parts"]:
        assert list(broken_down["results"]) == [WHOLE, *PARTS] and broken_down["results"][WHOLE]["ratio"] == 1.0
    fitted = result["suites"]["fitted"]["found"]["cases"]
    assert {(case["kind"], case["n"], case["dtype"], *case["sweeps"]) for case in fitted} == {
        ("fitted", 64, "float32", "n", "keys"),
        ("fitted", 128, "float32", "n"),
        ("fitted", 64, "bfloat16", "bfloat16"),
    }
    [half] = [table for table in fitted_tables(result["suites"]["fitted"]["found"]) if "bfloat16-t" in table.name]
    assert half.title.startswith("Training step, forward + backward; bfloat16; ") and len(half.rows) == 1


def test_growth_is_told_from_long_sequences_alone(result):
    found = result["suites"]["fitted"]["found"]
    assert "fitted-growth" not in {table.name for table in fitted_tables(found)}
    cases = [
        {
            **case,
            "n": 64 * case["n"],
            "results": {**case["results"], "sbm": {**case["results"]["sbm"], "median": median}},
        }
        for case in found["cases"]
        for median in [case["n"] ** 1.25]
    ]
    [growth] = [table for table in fitted_tables(found | {"cases": cases}) if table.name == "fitted-growth"]
    assert growth.rows == (("a graph for each head, 4,096 to 8,192 tokens", "1.25"),)


@pytest.fixture
def noted(monkeypatch):
    """Suites that do nothing but note the threads they have and the random number they get."""
    found = []

    def run(is_quick, track):
        found.append((is_quick, torch.get_num_threads(), torch.rand(()).item()))
        return {"cases": list(track("abc", description="letters"))}

    monkeypatch.setattr(suites, "SUITES", {name: Suite(run, lambda found: []) for name in ("one", "two")})
    return found


def test_progress_and_results_are_handed_over(noted):
    tracked, ready = [], []

    def track(items, description):
        tracked.append((items, description))
        return items

    result = run_suites(track=track, on_found=lambda so_far: ready.append(list(so_far["suites"])))
    assert tracked == [("abc", "letters")] * 2
    assert ready == [["one"], ["one", "two"]]
    assert result["suites"]["one"]["found"] == {"cases": ["a", "b", "c"]}
    assert [is_quick for is_quick, _, _ in noted] == [False, False]


def test_threads_and_random_numbers_are_as_before(noted):
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    result = run_suites(["two"], is_quick=True, threads=threads + 1)
    assert result["manifest"]["threads"] == threads + 1
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    run_suites(["two"], is_quick=True, threads=threads + 1)
    assert noted[0] == noted[1]
    assert noted[0][:2] == (True, threads + 1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"names": ["speed"]}, "suite among 'attention'"),
        ({"threads": 0}, "threads ≥ 1"),
        ({"device": "tpu"}, "device among 'cpu', 'cuda'"),
        ({"names": ["gpu"]}, "--device cuda for the suite gpu"),
        ({"names": ["memory"], "device": "cuda"}, "--device cpu for the suite memory"),
        ({"minutes": 1.0}, "with --device cuda alone"),
        ({"device": "cuda", "minutes": float("nan")}, "minutes > 0"),
        ({"device": "cuda", "before": {}}, "a results file of sbmt bench"),
        ({"device": "cuda", "before": {"is_quick": True, "manifest": {}, "suites": {}}}, "to go on from"),
    ],
)
def test_bad_requests_are_refused(arguments, words, monkeypatch):
    monkeypatch.setattr(suites, "usable_device", lambda name: CPU)
    with pytest.raises(SbmtError, match=words):
        run_suites(**arguments)


def test_the_manifest_says_what_times_depend_on(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    found = machine_manifest()
    assert found["OMP_WAIT_POLICY"] == "PASSIVE"
    assert all(found[name] for name in ("processor", "threads", "torch", "numpy", "scipy", "command"))
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert machine_manifest()["OMP_WAIT_POLICY"] == "not set"


def test_a_further_edge_costs_the_difference_of_times():
    cases = [
        {"kind": kind, "n_edges": n_edges, "results": {"exact": {"median": median}}}
        for kind, n_edges, median in (("a", 1000, 2.0), ("a", 3000, 3.0), ("b", 1000, 9.0))
    ]
    found = [case["results"]["exact"].get("marginal_ns_per_edge") for case in sampler.with_marginal_cost(cases)]
    assert found == [None, 500.0, None]


def test_a_slope_tells_linear_from_quadratic(result):
    sizes = [4096, 8192, 65536]
    assert sampler.slope(sizes, [3e-4 * n for n in sizes]) == 1.0
    assert sampler.slope(sizes, [n**2 for n in sizes]) == 2.0
    for sweep in result["suites"]["sampler"]["found"]["scaling"]:
        assert {row["n"] for one in sweep["samplers"].values() for row in one["rows"]} == {256, 512}


def test_numpy_draws_the_same_law(make_block_model):
    model = make_block_model(batch=1, heads=1, n_queries=300, n_keys=200)
    [mask] = sampler.by_numpy(model)
    assert mask.shape == (300, 200)
    assert mask.mean() == pytest.approx(model.expected_density().item(), rel=0.1)


def test_the_choice_is_judged_by_the_best(result):
    for one in result["suites"]["backends"]["found"].values():
        for cell in one["cells"]:
            assert cell["auto_over_best"] is None or cell["auto_over_best"] >= 1
        assert one["loss"]["worst"] >= one["loss"]["median"] >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells what a process holds")
def test_memory_is_measured_in_a_process_of_its_own():
    large, small = (Setting(n, density, "structured") for n, density in ((65536, 0.0005), (512, 0.04)))
    found = memory.run(memory.MemoryGrid((large,), (small,), ("dense",)))
    step, answer = (case["results"]["dense"] for case in found["cases"])
    assert "left out above" in step["missing"]
    assert answer["step"] > 4 * 512**2 * 4 / 2**20  # the scores of four heads in float32
    assert answer["before"] > 50
    steps, answers = SUITES["memory"].tables(found)
    assert [table.rows[0][-1] == LEFT_OUT for table in (steps, answers)] == [True, False]
