"""Tests commands on generated sequences, and commands that need no run."""

import json
import os
import shlex
import subprocess
import sys

import pytest
import torch

from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.training import RepeatedTokensConfig
from tests.experiments.benchmarks.tiny import use_tiny_grids

TINY = ["--length", "8", "--batch-size", "4", "--steps", "3", "--test-sequences", "8"]
PNG = b"\x89PNG"


def test_train_evaluate_inspect_round_trip(succeed, refused, tmp_path):
    words = ["train", "repeated-tokens", *TINY, "--output", "a b\udcff"]  # names may have blanks and not be Unicode
    assert "accuracy" in succeed(*words)
    folder = tmp_path / "a b\udcff"
    names = ["config.json", "metrics.csv", "model.safetensors", "result.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    result = json.loads((folder / "result.json").read_text())
    assert result["config"]["length"] == 8
    assert set(result["manifest"]) == {"command", "date", "sbmt", "python", "torch", "machine", "threads"}
    assert shlex.split(result["manifest"]["command"]) == ["sbmt", *words]  # the command can be repeated
    refused(words, "--resume")
    assert "density" in succeed("evaluate", folder.name, "--sequences", "8", "--n-samples", "2")
    succeed("inspect", folder.name, "--output", "seen.png")
    assert (tmp_path / "seen.png").read_bytes().startswith(PNG)


def test_recall_is_trained_and_evaluated(succeed, refused):
    words = "--n-pairs 2 --n-queries 2 --n-distractors 4 --n-clusters 4 --batch-size 4 --steps 2 --test-sequences 8"
    assert "accuracy" in succeed("train", "recall", *words.split(), "--permutation", "--output", "r")
    assert "accuracy" in succeed("evaluate", "r", "--sequences", "8")
    refused("inspect r", "use sbmt evaluate")


def test_sample_pictures_the_three_cases(succeed, tmp_path):
    succeed("sample", "--n-tokens", "12")
    assert (tmp_path / "sample.png").read_bytes().startswith(PNG)


def test_demo_compares_and_draws(succeed, tmp_path):
    out = succeed("demo", "--steps", "3", "--workers", "1", "--output", "a\x1b d")
    assert "full attention" in out and "\x1b" not in out and "Runs and results: a\\x1b d" in out
    assert (tmp_path / "a\x1b d" / "demo.png").exists()
    result = json.loads((tmp_path / "a\x1b d" / "result.json").read_text())
    assert set(result["medians"]) == {"full", "sbm", "fitted", "random-equal"}


def test_study_trains_prints_and_writes(succeed, tmp_path, monkeypatch):
    config = RepeatedTokensConfig(length=8, batch_size=4, steps=3, options={"n_clusters": 4}, test_sequences=8)
    trials = Trial("sbm", "SBM", n_seeds=2), Trial("linear", "linear attention", {"attention": "linear"})
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "two of them", config, trials, n_seeds=1))
    out = succeed("study", "tiny", "--figure", "numbers/tiny.png")
    assert all(words in out for words in ("two of them", "SBM", "linear attention"))
    folder = tmp_path / "runs" / "tiny"
    assert {p.name for p in folder.iterdir()} == {"sbm-seed0", "sbm-seed1", "linear-seed0", "result.json"}
    written = (folder / "result.json").read_text()
    assert (tmp_path / "numbers" / "tiny.png").read_bytes().startswith(PNG)
    assert set(json.loads(written)["medians"]) == {"sbm", "linear"}


@pytest.mark.bad_input
@pytest.mark.parametrize("command", ["study demo", "demo", "glue --reduced"])
def test_the_result_of_something_else_is_not_replaced(refused, tmp_path, command):
    for name in ("result.json", "demo.png")[: 1 + (command == "demo")]:
        (tmp_path / "mine" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text('{\n "config": 1}')
        refused(f"{command} --output mine", "or created by this command")
        assert (tmp_path / "mine" / name).read_text() == '{\n "config": 1}'
        (tmp_path / "mine" / name).unlink()
    assert os.listdir(tmp_path) == ["mine"] and not os.listdir(tmp_path / "mine")


def test_bench_measures_and_prints(succeed, tmp_path, monkeypatch):
    use_tiny_grids(monkeypatch)
    out = succeed("bench", "--quick", *"--suite attention --json b/bench.json".split())
    assert "Training step" in out and "MiB" in out
    result = json.loads((tmp_path / "b" / "bench.json").read_text())
    assert list(result["suites"]) == ["attention"] and result["manifest"]["threads"] == torch.get_num_threads()


def test_cost_prints_and_writes_what_is_asked_for(succeed, tmp_path):
    out = succeed("cost")
    assert out.count("Nyströmformer") == 2 and "ListOps" in out
    succeed(*"cost --attention sbm --length 300 --length 600 --density 0.2 --json deep/costs.json".split())
    found = json.loads((tmp_path / "deep" / "costs.json").read_text())
    assert [(column["n"], column["density"]) for column in found["columns"]] == [(300, 0.2), (600, 0.2)]
    assert set(found["operations"]) == {"full", "sbm"} and found["manifest"]["sbmt"]


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("cost", {"MPLBACKEND": "foo"}, (0, "")),
        ("train repeated-tokens", {"RANK": "abc"}, (2, "sbmt: RANK, LOCAL_RANK")),
    ],
)
def test_whoever_stops_reading_is_no_mistake_but_a_rank_in_letters_is(tmp_path, command, environment, expected):
    line = f"{sys.executable} -m sbmt {command} | head -1; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | environment
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == expected[0] and done.stderr.count("\n") == (expected[0] != 0)
    assert done.stderr.startswith(expected[1])


@pytest.mark.bad_input
@pytest.mark.parametrize("command", ["bench --device cuda", "train repeated-tokens --device cuda"])
def test_without_a_gpu_there_is_one_line(refused, monkeypatch, command):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(command, "a GPU that torch can use" if command.startswith("bench") else "devices that this machine has")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sample --case round", "case to be one of 'collapsed', 'separated', 'distant'"),
        ("sample --output mask.pgf", "a file name ending in"),
        ("train repeated-tokens --size huge", "size to be one of 'demo', 'paper'"),
        ("demo --seeds 0", "seeds"),
        ("study magic", "study to be one of 'demo', 'figure4'"),
        ("study demo --figure /proc/x.png", "cannot write /proc/x.png"),
        ("bench --suite gpu", "suite to be one of"),
        ("cost --density 2", "density in (0, 1)"),
    ],
)
def test_mistakes_take_one_line(refused, command, words):
    refused(command, words)
