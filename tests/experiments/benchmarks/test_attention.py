"""Attentions raced on the CPU, which also plays the GPU."""

import json
from dataclasses import replace

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.benchmarks import attention
from sbmt.experiments.benchmarks.attention import EVERY_PAIR, GPU_FULL, first_call, run
from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, GPU_CONTESTANTS, entry, full_attention
from sbmt.experiments.benchmarks.tables import gpu_tables
from sbmt.experiments.tables import LEFT_OUT
from tests.experiments.benchmarks.tiny import ON_CPU, SMALL, gpu_grid, raising


@pytest.fixture(scope="module")
def found():
    return run(gpu_grid(0.1, 0.3, **ON_CPU))


def test_every_setting_is_measured_both_ways(found):
    keys = [(case["kind"], case["density"], case["is_training"]) for case in found["cases"]]
    kinds = ("near-constant", "structured")
    assert keys == [(kind, density, way) for kind in kinds for density in (0.1, 0.3) for way in (False, True)]
    for case in found["cases"]:
        assert case["expected_density"] == pytest.approx(case["density"], rel=0.1)
        ran = {name for name, one in case["results"].items() if "ratio" in one}
        assert ran == {"sdpa", "sparse", "dense", "auto", "torch.sparse"}
        assert case["results"]["sdpa"]["ratio"] == 1.0
    assert found["left_out"] == []


def test_tables_show_what_ran_and_why_the_rest_did_not(found):
    tables = {table.name: table for table in gpu_tables(json.loads(json.dumps(found, allow_nan=False)))}
    assert set(tables) == {"gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward"}
    for table in tables.values():
        assert table.rows and {len(row) for row in table.rows} == {len(table.headings)}, table.name
    shown = tables["gpu-training"]
    assert "2 heads of width 8" in shown.title and "n = 64" in shown.title and "pyg / SDPA" not in shown.headings
    ratios = [row[shown.headings.index("sparse / SDPA")] for row in shown.rows]
    assert all(float(ratio) > 0 for ratio in ratios)
    assert shown.notes == ("flex: does not run here: RuntimeError: Unsupported: x … long story", "pyg: out of memory")
    assert {row[-1] for row in tables["gpu-memory-forward"].rows} == {LEFT_OUT}


def test_without_the_reference_there_are_times_alone():
    [one, *_] = run(gpu_grid(0.1, sdpa=raising(RuntimeError("no kernel"))))["cases"]
    assert set(one["results"]["sparse"]) == {"median", "low", "high", "rounds"}


def test_no_setting_begins_after_the_time_and_a_resumed_run_adds_them():
    kept = []
    found = run(gpu_grid(0.1, 0.3), minutes=1e-9)
    assert found["cases"] == [] and len(found["left_out"]) == 4
    assert "near-constant, n = 64, density 10 %" in found["left_out"]
    [table] = gpu_tables(found)
    assert table.rows[0] == ("near-constant, n = 64, density 10 %", "no time left")
    part = run(gpu_grid(0.1))
    before = json.dumps(part["cases"])
    whole = run(gpu_grid(0.1, 0.3), before=part, on_found=lambda found: kept.append(json.dumps(found)))
    assert len(whole["cases"]) == 8 and whole["left_out"] == []
    assert json.dumps(whole["cases"][:4]) == before
    assert json.loads(kept[-1]) == whole


@pytest.mark.bad_input
def test_a_lost_gpu_ends_the_run_which_can_be_continued(monkeypatch):
    kept = []

    def lost(*_, **__):
        raise RuntimeError("illegal memory access")

    with monkeypatch.context() as patch, pytest.raises(SbmtError, match="run it again with --resume"):
        patch.setattr(torch, "ones", lost)
        run(gpu_grid(0.1), on_found=lambda found: kept.append(json.dumps(found)))
    before = json.loads(kept[-1])
    assert len(before["cases"]) == 2
    found = run(gpu_grid(0.1), before=before)
    assert len(found["cases"]) == 4 and found["cases"][0] == before["cases"][0]


def test_what_does_not_run_is_a_finding():
    case = build(Setting(64, 0.1, "structured", **SMALL))
    failing = raising(NotImplementedError("no such operator\nand a long story"))
    why = "does not run here: NotImplementedError: no such operator … and a long story"
    assert first_call(entry(failing, case, False)) == {"missing": why}
    assert first_call(entry(CONTESTANTS["sdpa"], case, True)) == {}


def test_16_bit_tokens_meet_a_layer_in_float32():
    case = build(Setting(256, 0.1, "structured", **SMALL))
    placed = case.to(torch.device("cpu"), torch.bfloat16)
    assert [x.dtype for x in placed.leaves[:3]] == [torch.bfloat16] * 3
    assert {x.dtype for x in placed.leaves[3:]} == {torch.float32}
    assert placed.block_model().query_membership.dtype == torch.float32
    assert all(x.is_leaf and x.requires_grad for x in placed.leaves)
    found = {}
    for name in ("torch.sparse", "auto"):
        torch.manual_seed(1)
        output = GPU_CONTESTANTS[name].attend(placed)
        found[name] = output if isinstance(output, torch.Tensor) else output.values
        assert found[name].dtype == torch.bfloat16
    torch.testing.assert_close(found["torch.sparse"], found["auto"], rtol=0.05, atol=0.05)
    torch.testing.assert_close(full_attention(placed).float(), full_attention(case), rtol=0.05, atol=0.05)


def test_all_that_the_gpu_is_asked_for_can_be_built():
    settings = GPU_FULL.sweeps["gpu"]
    assert len(settings) == 60 and (settings[0].n_heads, settings[0].d_head) == (8, 64)
    assert [s.n for s in GPU_FULL.settings()[: len(GPU_FULL.sweeps["fitted"])]] == [4096, 16384, 65536, 1024]
    for kind, density in {(s.kind, s.density) for s in settings if s.density in (0.001, EVERY_PAIR)}:
        model = build(replace(settings[0], n=256, kind=kind, density=density)).block_model()
        assert model.expected_density().mean().item() == pytest.approx(density, rel=0.1)


def test_settings_shared_by_sweeps_are_measured_once():
    assert attention.FULL.settings().count(Setting(4096, 0.01, "structured")) == 1
    assert len(set(attention.FULL.settings())) == len(attention.FULL.settings()) == 28
