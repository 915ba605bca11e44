"""``sbmt bench --device cuda`` where the CPU plays the GPU."""

import json

import pytest
import torch

from sbmt.experiments.benchmarks import suites
from sbmt.experiments.benchmarks.timing import CPU
from tests.experiments.benchmarks.tiny import use_tiny_grids


@pytest.fixture
def played_gpu(monkeypatch):
    monkeypatch.setattr(suites, "usable_device", lambda name: CPU)
    use_tiny_grids(monkeypatch)


def test_a_file_is_written_and_continued(run, played_gpu, tmp_path):
    options = ["bench", "--device", "cuda", "--quick", "--json", "gpu.json"]
    code, out, _ = run(*options, "--minutes", "0.0000001")
    assert code == 0 and "no time left" in out
    first = json.loads((tmp_path / "gpu.json").read_text())["suites"]["gpu"]["found"]
    assert first["cases"] == [] and len(first["left_out"]) == 2
    code, out, _ = run(*options, "--resume")
    assert code == 0 and "Training step" in out and "no time left" not in out
    second = json.loads((tmp_path / "gpu.json").read_text())["suites"]["gpu"]["found"]
    assert len(second["cases"]) == 4 and second["left_out"] == []


@pytest.mark.bad_input
def test_without_a_gpu_there_is_one_line(run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for words in (["bench", "--device", "cuda"], ["train", "repeated-tokens", "--device", "cuda"]):
        code, _, err = run(*words)
        assert code == 2 and "a GPU that torch can use" in err and err.count("\n") == 1


@pytest.mark.bad_input
def test_a_file_that_is_no_result_is_refused(run, played_gpu, tmp_path):
    (tmp_path / "x.json").write_text("[]")
    code, _, err = run("bench", "--device", "cuda", "--json", "x.json", "--resume")
    assert code == 2 and "a results file of sbmt bench" in err
    code, _, err = run("bench", "--device", "cuda", "--json", "y.json", "--resume")
    assert code == 2 and "y.json, which is not there" in err
