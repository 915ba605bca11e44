import io
import json
import os
import shlex
import subprocess
import sys

import pytest
import torch
from rich.console import Console

from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, Trial
from sbmt.experiments.tables import Table
from sbmt.experiments.training import RepeatedTokensConfig
from tests.experiments.benchmarks.tiny import use_tiny_grids

TINY = ["--length", "8", "--batch-size", "4", "--steps", "3", "--test-sequences", "8"]


def test_train_evaluate_inspect_round_trip(run, tmp_path):
    code, out, _ = run("train", "repeated-tokens", *TINY, "--output", "r")
    assert code == 0
    assert "accuracy" in out
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [
        "config.json",
        "metrics.csv",
        "model.safetensors",
        "result.json",
    ]
    result = json.loads((tmp_path / "r" / "result.json").read_text())
    assert result["config"]["length"] == 8
    assert set(result["manifest"]) == {"command", "date", "sbmt", "python", "torch", "machine", "threads"}

    code, _, err = run("train", "repeated-tokens", *TINY, "--output", "r")
    assert code == 2 and "--resume" in err
    code, out, _ = run("evaluate", "r", "--sequences", "8", "--n-samples", "2")
    assert code == 0
    assert "density" in out
    code, out, _ = run("inspect", "r", "--output", "seen.png")
    assert code == 0
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")


def test_the_recorded_command_can_be_run_again(run, tmp_path):
    """A folder's name may hold blanks, and what is not Unicode."""
    words = ["train", "repeated-tokens", *TINY, "--output", "a b\udcff"]
    assert run(*words)[0] == 0
    command = json.loads((tmp_path / "a b\udcff" / "result.json").read_text())["manifest"]["command"]
    assert shlex.split(command) == ["sbmt", *words]
    assert run("evaluate", "a b\udcff", "--sequences", "8")[0] == 0


def test_recall_is_evaluated_with_more_distractors(run, tmp_path):
    words = "--n-pairs 2 --n-queries 2 --n-distractors 4 --n-clusters 4 --batch-size 4 --steps 2 --test-sequences 8"
    code, out, _ = run("train", "recall", *words.split(), "--permutation", "--output", "r")
    assert code == 0 and "accuracy" in out
    assert json.loads((tmp_path / "r" / "result.json").read_text())["config"]["length"] == 8
    answers = [run("evaluate", "r", "--sequences", "8", *more) for more in ([], ["--distractors", "900"])]
    assert [code for code, _, _ in answers] == [0, 0] and answers[0][1] != answers[1][1]
    run("train", "repeated-tokens", *TINY, "--fresh-values", "--output", "f")
    for command, words in (
        (("evaluate", "r", "--distractors", "-1"), "n_distractors ≥ 1"),
        (("evaluate", "f", "--distractors", "9"), "a run of sbmt train recall, got repeated_tokens"),
        (("inspect", "r"), "use sbmt evaluate"),
        (("inspect", "f"), "use sbmt evaluate"),
    ):
        code, _, err = run(*command)
        assert code == 2 and words in err and err.count("\n") == 1


def test_sample_pictures_the_three_cases(run, tmp_path):
    code, out, _ = run("sample", "--n-tokens", "12")
    assert code == 0
    assert all(case in out for case in ("collapsed", "separated", "distant"))
    assert (tmp_path / "sample.png").read_bytes().startswith(b"\x89PNG")


def test_demo_compares_and_draws(run, tmp_path):
    code, out, _ = run("demo", "--steps", "3", "--workers", "1", "--output", "d")
    assert code == 0
    assert "full attention" in out
    assert (tmp_path / "d" / "demo.png").exists()
    result = json.loads((tmp_path / "d" / "result.json").read_text())
    assert set(result["medians"]) == {"full", "sbm", "fitted", "random-equal"}


@pytest.fixture
def tiny_study(monkeypatch):
    """A study of two trials, one of them on two seeds, that takes a second."""
    config = RepeatedTokensConfig(length=8, batch_size=4, steps=3, options={"n_clusters": 4}, test_sequences=8)
    trials = Trial("sbm", "SBM", n_seeds=2), Trial("linear", "linear attention", {"attention": "linear"})
    monkeypatch.setitem(STUDIES, "tiny", Study("tiny", "two of them", config, trials, n_seeds=1))


def test_study_trains_prints_and_writes(run, tmp_path, tiny_study):
    code, out, _ = run("study", "tiny", "--json", "numbers/tiny.json", "--figure", "numbers/tiny.png")
    assert code == 0
    assert all(words in out for words in ("two of them", "SBM", "linear attention"))
    folder = tmp_path / "runs" / "tiny"
    assert {p.name for p in folder.iterdir()} == {"sbm-seed0", "sbm-seed1", "linear-seed0", "result.json"}
    written = (folder / "result.json").read_text()
    assert (tmp_path / "numbers" / "tiny.json").read_text() == written
    assert (tmp_path / "numbers" / "tiny.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads(written)
    assert result["study"] == "tiny" and set(result["medians"]) == {"sbm", "linear"}
    assert [r["trial"] for r in result["runs"]] == ["sbm", "linear", "sbm"]
    assert result["manifest"]["command"].startswith("sbmt study tiny")
    first = (folder / "sbm-seed0" / "model.safetensors").stat().st_mtime_ns
    assert run("study", "tiny", "--output", "runs/tiny")[0] == 0  # goes on with what is there
    assert (folder / "sbm-seed0" / "model.safetensors").stat().st_mtime_ns == first


def test_bench_measures_prints_and_draws(run, tmp_path, monkeypatch):
    use_tiny_grids(monkeypatch)
    options = ["--suite", "attention", "--suite", "backends", "--threads", "1"]
    code, out, _ = run("bench", "--quick", *options, "--json", "b/bench.json", "--figure", "b/bench.png")
    assert code == 0
    assert "Training step" in out
    assert "Time of the automatic choice" in out
    assert (tmp_path / "b" / "bench.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "b" / "bench.json").read_text())
    assert list(result["suites"]) == ["attention", "backends"]
    assert result["manifest"]["threads"] == 1
    assert result["manifest"]["command"].startswith("sbmt bench --quick")


def test_cost_prints_and_writes_what_is_asked_for(run, tmp_path):
    code, out, err = run("cost", "--no-memory")
    assert code == 0 and out.count("Nyströmformer") == 2 and "ListOps" in out and "Peak memory" not in out, err
    options = "--no-memory --attention sbm --length 300 --length 600 --density 0.2 --json deep/costs.json"
    assert run("cost", *options.split())[0] == 0
    found = json.loads((tmp_path / "deep" / "costs.json").read_text())
    assert [(column["n"], column["density"]) for column in found["columns"]] == [(300, 0.2), (600, 0.2)]
    assert set(found["operations"]) == {"full", "sbm"} and found["manifest"]["sbmt"]


@pytest.mark.bad_input
def test_without_a_gpu_there_is_one_line(run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for words in (["bench", "--device", "cuda"], ["train", "repeated-tokens", "--device", "cuda"]):
        code, _, err = run(*words)
        assert code == 2 and "a GPU that torch can use" in err and err.count("\n") == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_table_breaks_a_number_and_a_file_gets_every_row_in_a_line(is_terminal):
    file = io.StringIO()
    console = Console(file=file, width=30, force_terminal=is_terminal, color_system=None, markup=False)
    rows = ("memberships: products of Q and K", "1,652,539,136", "97.60 ± 0.38"), ("softmax", "7", "2.4")
    print_table(console, Table("t", "A title", ("what is computed", "operations", "share"), rows))
    lines = file.getvalue().splitlines()
    assert all(word in file.getvalue().split() for row in rows for cell in row for word in cell.split())
    assert is_terminal or any(all(cell in line for cell in rows[0]) for line in lines)


def test_whoever_stops_reading_is_no_mistake(tmp_path):
    command = f"{sys.executable} -m sbmt cost --no-memory | head -1; exit ${{PIPESTATUS[0]}}"
    environment = os.environ | {"MPLBACKEND": "foo"}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sample", "--case", "round"], "case among 'collapsed', 'separated', 'distant'"),
        (["sample", "--sampler", "magic"], "sampler among"),
        (["sample", "--output", "mask.xyz"], "file ending"),
        (["evaluate", "nowhere"], "the folder of a run"),
        (["train", "repeated-tokens", "--size", "huge"], "size among 'demo', 'paper'"),
        (["train", "repeated-tokens", "--attention", "magic"], "attention among"),
        (["train", "repeated-tokens", "--resume"], "config.json"),
        (["demo", "--seeds", "0"], "at least one"),
        (["study", "magic"], "study among 'demo', 'attentions'"),
        (["study", "demo", "--workers", "0"], "n_workers ≥ 1"),
        (["bench", "--suite", "speed"], "suite among 'attention', 'fitted', 'backends', 'memory'"),
        (["bench", "--suite", "gpu"], "suite among"),
        (["cost", "--attention", "flash"], "attention among"),
        (["cost", "--density", "2"], "density in (0, 1)"),
        (["cost", "--json", "/proc/x.json"], "to write"),
        (["train", "repeated-tokens", "--device", "tpu"], "device among 'auto', 'cpu', 'cuda'"),
        (["bench", "--suite", "backends", "--figure", "x.png"], "the suite attention or fitted for --figure"),
        (["study", "demo", "--json", "/proc/x.json"], "to write /proc/x.json"),
        (["glue", "--figure", "/proc/x.png"], "to write /proc/x.png"),
        (["inspect", "--output", ""], "words in every argument"),
        (["train", "repeated-tokens", "--output="], "words in every argument"),
    ],
)
def test_mistakes_exit_with_2_and_no_traceback(run, tmp_path, arguments, words):
    code, out, err = run(*arguments)
    assert code == 2 and "Traceback" not in out
    assert err.startswith("sbmt: expected ") and err.count("\n") == 1 and words in err
