"""The suite ``gpu``, run on the CPU."""

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from sbmt import SbmtError
from sbmt.experiments.benchmarks import gpu, gpu_contestants, run_suites, suites, tables_of
from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.contestants import layer_with, torch_sparse
from sbmt.experiments.benchmarks.gpu_contestants import (
    CONTESTANTS,
    GpuContestant,
    flash_attention,
    flex_attention,
    on_device,
    setting_at,
)
from sbmt.experiments.benchmarks.progress import Conditions
from sbmt.experiments.benchmarks.timing import CPU, Pace
from sbmt.experiments.tables import LEFT_OUT


def small(n, density, kind):
    return Setting(n, density, kind, n_clusters=8, n_heads=2, d_head=8)


def raising(error):
    def attend(case):
        raise error

    return GpuContestant("x", attend)


ON_CPU = CONTESTANTS | {
    "sparse": GpuContestant("sparse", layer_with()),
    "tiled": GpuContestant("tiled", layer_with(sampler="bernoulli", backend="dense")),
    "flex": raising(RuntimeError("Unsupported: x\nlong story")),
    "pyg": raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 34.00 GiB.")),
}
GRID = gpu.GpuGrid((64,), (0.1, 0.3), Pace(0.001, 3, 3), ON_CPU, small, CPU, torch.float32)
TINY = replace(GRID, contestants={name: ON_CPU[name] for name in ("sdpa", "sparse", "tiled")})


def run(grid, **asked):
    return gpu.run(grid, Conditions(is_quick=True, on_case=lambda done, total: None, **asked))


@pytest.fixture(scope="module", autouse=True)
def inputs_are_built_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "build", cache(build))
        yield


@pytest.fixture(scope="module")
def found(inputs_are_built_once):
    return run(GRID)


def test_every_setting_is_measured_both_ways(found):
    keys = [(case["kind"], case["density"], case["is_training"]) for case in found["cases"]]
    kinds = ("near-constant", "structured")
    assert keys == [(kind, density, way) for kind in kinds for density in (0.1, 0.3) for way in (False, True)]
    assert all(case["expected_density"] == pytest.approx(case["density"], rel=0.1) for case in found["cases"])
    for case in found["cases"]:
        assert list(case["results"]) == list(CONTESTANTS)
        ran = {name for name, one in case["results"].items() if "ratio" in one}
        assert ran == {"sdpa", "sparse", "tiled", "auto", "torch.sparse"}
        assert case["results"]["sdpa"]["ratio"] == 1.0
    assert (found["left_out"], found["failures"]) == ([], [])


def test_failures_are_kept_with_their_words_and_memory_is_no_failure(found):
    first = found["cases"][0]["results"]
    assert first["flex"]["failed"] == "RuntimeError: Unsupported: x … long story"
    assert first["pyg"]["missing"] == "out of memory"
    assert "34.00 GiB" in first["pyg"]["message"]


def test_tables_show_what_ran_and_what_did_not(found):
    again = json.loads(json.dumps(found, allow_nan=False))
    tables = {table.name: table for table in suites.SUITES["gpu"].tables(again)}
    ways = {"gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward"}
    assert set(tables) == {*ways, "gpu-trouble"}
    for table in tables.values():
        assert table.rows and {len(row) for row in table.rows} == {len(table.headings)}, table.name
    shown = tables["gpu-training"]
    column = {heading: [row[i] for row in shown.rows] for i, heading in enumerate(shown.headings)}
    assert column["pyg / SDPA"] == [LEFT_OUT] * 4 and column["flex / SDPA"] == ["failed"] * 4
    assert all(float(x) > 0 for x in column["sparse / SDPA"])
    assert "x: out of memory" not in shown.notes and "pyg: out of memory" in shown.notes
    assert ("flex, 8 of 8 races", "RuntimeError: Unsupported: x … long story") in tables["gpu-trouble"].rows


def test_an_input_that_was_too_large_is_not_tried_denser():
    tried = []

    def attend(case):
        tried.append((case.setting.kind, case.setting.density))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    found = run(replace(TINY, contestants=TINY.contestants | {"auto": GpuContestant("auto", attend)}))
    assert [density for _, density in tried] == [0.1, 0.3, 0.1, 0.3]  # auto may fit again; forward tells of training
    tried.clear()
    found = run(replace(TINY, contestants=TINY.contestants | {"pyg": GpuContestant("pyg", attend)}))
    assert tried == [("near-constant", 0.1), ("structured", 0.1)]
    assert all(case["results"]["pyg"]["missing"] == "out of memory" for case in found["cases"])


def test_a_slow_call_is_not_raced(monkeypatch):
    monkeypatch.setattr(gpu, "MOST_SECONDS", 0.0)
    for case in run(replace(TINY, densities=(0.1,)))["cases"]:
        assert all(one["missing"] == "one call takes more than 0 s" for one in case["results"].values())


def test_a_failure_in_the_race_does_not_bar_anybody_from_the_next():
    calls = iter(range(100))

    def attend(case):
        if next(calls) == 3:
            raise torch.OutOfMemoryError("late")
        return flash_attention(case)

    late = {"flex": GpuContestant("flex", attend, is_sbm=False)}
    first, *others = run(replace(TINY, densities=(0.1,), contestants=TINY.contestants | late))["cases"]
    assert {one["failed"] for one in first["results"].values()} == {"OutOfMemoryError in the race: late"}
    assert all("ratio" in one for case in others for one in case["results"].values())


def test_without_the_reference_there_are_times_alone():
    grid = replace(TINY, contestants=TINY.contestants | {"sdpa": raising(RuntimeError("no kernel"))})
    results = run(grid)["cases"][0]["results"]
    assert "ratio" not in results["sparse"] and results["sparse"]["median"] > 0


def test_no_case_begins_after_the_time_and_a_resumed_run_adds_them():
    kept = []
    found = run(TINY, minutes=1e-9, on_found=lambda found: kept.append(json.dumps(found)))
    assert found["cases"] == [] and len(found["left_out"]) == 4
    assert "near-constant, n = 64, density 10 %" in found["left_out"]
    part = run(replace(TINY, densities=(0.1,)))
    before = json.dumps(part["cases"])
    whole = run(TINY, before=part, on_found=lambda found: kept.append(json.dumps(found)))
    assert len(whole["cases"]) == 8 and whole["left_out"] == []
    assert json.dumps(whole["cases"][: len(part["cases"])]) == before
    assert json.loads(kept[-1]) == whole


@pytest.mark.bad_input
def test_a_lost_gpu_ends_the_run_which_can_be_continued(monkeypatch):
    kept = []
    grid = replace(TINY, densities=(0.1,), contestants=TINY.contestants | {"pyg": raising(RuntimeError("illegal"))})
    with monkeypatch.context() as patch, pytest.raises(SbmtError, match="run it again with --resume"):
        patch.setattr(gpu, "is_alive", lambda device: False)
        run(grid, on_found=lambda found: kept.append(json.dumps(found)))
    before = json.loads(kept[-1])
    assert [case["results"]["pyg"]["failed"] for case in before["cases"]] == ["RuntimeError: illegal"]
    found = run(TINY, before=before)
    assert [case["is_training"] for case in found["cases"]][:2] == [False, True] and len(found["cases"]) == 8
    assert found["cases"][0] == before["cases"][0]


def test_an_input_that_cannot_be_built_does_not_stop_the_others():
    found = run(replace(TINY, densities=(1e-9, 0.1)))
    [failure] = found["failures"]
    assert failure["case"].startswith("structured, n = 64") and "a density from" in failure["failed"]
    assert {(case["kind"], case["density"]) for case in found["cases"]} >= {("structured", 0.1)}


@pytest.fixture(scope="module")
def case():
    return build(Setting(256, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8))


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_attends_along_the_drawn_mask(case, monkeypatch):
    masks = []
    make = gpu_contestants._block_mask
    monkeypatch.setattr(gpu_contestants, "_compiled_flex_attention", lambda: flex.flex_attention)
    monkeypatch.setattr(gpu_contestants, "_block_mask", lambda mask: masks.append(mask) or make(mask))
    tokens = (x.detach() for x in (case.query, case.key, case.value))  # it has no backward pass on the CPU
    values = flex_attention(replace(case, **dict(zip(("query", "key", "value"), tokens, strict=True))))
    assert masks[0].float().mean().item() == pytest.approx(0.1, rel=0.1)
    expected = torch.nn.functional.scaled_dot_product_attention(case.query, case.key, case.value, masks[0])
    has_edges = masks[0].any(-1)
    torch.testing.assert_close(values[has_edges], expected[has_edges])


def test_blocks_are_empty_partial_or_full():
    mask = torch.zeros(1, 1, 256, 384, dtype=torch.bool)
    mask[0, 0, :128, 128:256] = True
    mask[0, 0, 200, 300] = mask[0, 0, 200, 5] = True
    blocks = gpu_contestants._block_mask(mask)
    assert blocks.kv_num_blocks.tolist() == [[[0, 2]]] and blocks.kv_indices[0, 0, 1, :2].tolist() == [0, 2]
    assert blocks.full_kv_num_blocks.tolist() == [[[1, 0]]] and blocks.full_kv_indices[0, 0, 0, 0] == 1
    assert blocks.seq_lengths == (256, 384)


def test_16_bit_tokens_meet_a_layer_in_float32(case):
    placed = on_device(case, CPU, torch.bfloat16)
    assert [x.dtype for x in placed.leaves[:3]] == [torch.bfloat16] * 3
    assert {x.dtype for x in placed.leaves[3:]} == {torch.float32}
    assert placed.block_model().query_membership.dtype == torch.float32
    assert all(x.is_leaf and x.requires_grad for x in placed.leaves)
    full, sparse = flash_attention(placed), torch_sparse(placed)
    assert full.dtype == sparse.dtype == torch.bfloat16
    exact = torch.nn.functional.scaled_dot_product_attention(case.query, case.key, case.value)
    torch.testing.assert_close(full.float(), exact, rtol=0.05, atol=0.05)
    torch.manual_seed(1)
    sparse = torch_sparse(placed)
    torch.manual_seed(1)
    torch.testing.assert_close(sparse, layer_with()(placed), rtol=0.05, atol=0.05)


def test_what_cannot_fit_is_not_tried():
    much, little = setting_at(65536, 0.5, "structured"), setting_at(4096, 0.01, "structured")
    room = 140 * 2**30
    left_out = {name for name, one in CONTESTANTS.items() if one.why_too_large(much, room) or one.why_not(much, True)}
    assert left_out == {"sparse", "flex", "pyg", "torch.sparse"}
    assert not any(one.why_too_large(little, room) or one.why_not(little, True) for one in CONTESTANTS.values())
    assert CONTESTANTS["pyg"].why_too_large(little, 2**28) is not None


def test_the_whole_grid_can_be_built():
    assert len(gpu.FULL.settings()) == 60 and gpu.FULL.settings()[0].n_heads == 8
    for kind in ("near-constant", "structured"):
        for density in gpu.FULL.densities:
            model = build(setting_at(256, density, kind)).block_model()
            assert model.expected_density().mean().item() == pytest.approx(density, rel=0.1)


def test_the_command_goes_on_from_a_file_of_such_a_machine(monkeypatch):
    monkeypatch.setattr(suites, "usable_device", lambda name: CPU)
    monkeypatch.setattr(gpu, "QUICK", TINY)
    kept = []
    first = run_suites(device="cuda", is_quick=True, minutes=1e-9, on_found=lambda r: kept.append(json.dumps(r)))
    assert list(first["suites"]) == ["gpu"] and json.loads(kept[-1]) == first
    second = run_suites(device="cuda", is_quick=True, before=first)
    assert len(second["suites"]["gpu"]["found"]["cases"]) == 8
    names = {"gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward"}
    assert {table.name for table in tables_of(second)} == names


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"device": "tpu"}, "device among 'cpu', 'cuda'"),
        ({"names": ["gpu"]}, "--device cuda for the suite gpu"),
        ({"names": ["memory"], "device": "cuda"}, "--device cpu for the suite memory"),
        ({"minutes": 1.0}, "with --device cuda alone"),
        ({"device": "cuda", "minutes": 0.0}, "minutes > 0"),
        ({"device": "cuda", "minutes": float("nan")}, "minutes > 0"),
        ({"device": "cuda", "before": {}}, "a results file of sbmt bench"),
        ({"device": "cuda", "before": {"is_quick": True, "manifest": {}, "suites": {}}}, "to go on from"),
    ],
)
def test_requests_that_do_not_fit_the_device_are_refused(arguments, words, monkeypatch):
    monkeypatch.setattr(suites, "usable_device", lambda name: CPU)
    with pytest.raises(SbmtError, match=words):
        run_suites(**arguments)


@pytest.mark.bad_input
def test_without_a_gpu_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SbmtError, match="a GPU that torch can use"):
        run_suites(device="cuda")
