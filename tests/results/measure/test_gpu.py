"""The script that measures on a machine with a GPU, with its processes replaced."""

import sys
from pathlib import Path

import pytest
import typer

from results.measure import gpu
from sbmt.command import run_command
from sbmt.experiments.cli import app
from sbmt.experiments.files import read_json, write_json

FOREVER = float("inf")


@pytest.fixture
def processes(monkeypatch):
    """Replaces processes by ``act(words)``; returns the commands."""

    def use(act):
        commands = []

        def call(command, seconds, log=None):
            words = [str(word) for word in command]
            commands.append(words)
            if log is not None:
                log.write_text("begun\nSbmtError: no\n")
            return act(words)

        monkeypatch.setattr(gpu, "call", call)
        monkeypatch.setattr(gpu, "manifest", lambda: {"gpu": "none"})
        return commands

    return use


def test_a_process_ends_with_its_time(tmp_path):
    log = tmp_path / "log"
    assert gpu.call([sys.executable, "-c", "import results.tables; print('found')"], 60.0, log) == 0
    assert log.read_text() == "found\n"  # the source tree is where it looks
    wait = "import signal, time; signal.signal(signal.SIGINT, lambda *_: exit(print('kept'))); print('on', flush=True);"
    assert gpu.call([sys.executable, "-c", wait + "time.sleep(100)"], 1.0, log) is None
    assert log.read_text() == "on\nkept\n"
    assert gpu.call([sys.executable, "-c", "exit(3)"], 60.0, log) == 3


def test_tests_are_summarised(processes, tmp_path):
    commands = processes(lambda words: 1)
    gpu.measure_tests(tmp_path, FOREVER)
    assert all(path in commands[0] and (gpu.ROOT / path).exists() for path in gpu.TESTS)
    found = read_json(tmp_path / "tests.json")
    assert (found["exit_code"], found["summary"]) == (1, "SbmtError: no")


def test_the_benchmark_is_continued(processes, tmp_path):
    commands = processes(lambda words: write_json(tmp_path / "bench.json", {}))
    gpu.measure_bench(tmp_path, FOREVER)
    gpu.measure_bench(tmp_path, 1800.0)
    assert ["--resume" in words for words in commands] == [False, True]
    assert "--minutes" not in commands[0] and commands[1][commands[1].index("--minutes") + 1] == "29.00"


def finishing(unfinished=()):
    """Runs finish at once, except for the unfinished, which only write a checkpoint; images have no data."""

    def act(words):
        if "train" not in words:
            return 2 if words[-1] == "image" else 0
        folder = Path(words[words.index("--output") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        if folder.name in unfinished:
            (folder / "state.ckpt").write_bytes(b"")
            return None
        write_json(folder / "result.json", {"test": {"accuracy": 0.9, "density": 0.125}, "seconds": 1.0})
        return 0

    return act


def test_runs_are_finished_stopped_or_skipped_and_continued(processes, tmp_path):
    commands = processes(finishing(unfinished={"listops-sbm"}))
    gpu.measure_runs(tmp_path, FOREVER)
    status = {name: one["status"] for name, one in read_json(tmp_path / "runs.json")["runs"].items()}
    assert len(status) == len(gpu.TASKS) * len(gpu.ATTENTIONS)
    assert status["repeated-tokens-random_mask"] == status["listops-full"] == "finished"
    assert status["listops-sbm"] == "stopped"
    assert status["listops-random_mask"] == status["image-full"] == "skipped"
    masked = next(words for words in commands if "random_mask" in words)
    assert masked[masked.index("--mask-density") + 1] == "0.125"

    commands = processes(finishing())
    gpu.measure_runs(tmp_path, FOREVER)
    trained = [words for words in commands if "train" in words]
    names = [Path(words[words.index("--output") + 1]).name for words in trained]
    assert names == ["listops-sbm", "listops-random_mask"] and "--resume" in trained[0]
    assert {one["status"] for one in read_json(tmp_path / "runs.json")["runs"].values()} == {"finished", "skipped"}


def test_a_run_that_fails_says_why_and_none_begins_after_the_time(processes, tmp_path):
    processes(lambda words: 1)
    gpu.measure_runs(tmp_path, FOREVER)
    failed = read_json(tmp_path / "runs.json")["runs"]["repeated-tokens-full"]
    assert failed["status"] == "failed" and "SbmtError: no" in failed["why"]
    gpu.measure_runs(tmp_path, 0.0)
    assert read_json(tmp_path / "runs.json")["runs"]["repeated-tokens-sbm"]["status"] == "not begun"


def test_the_command_line_takes_its_commands(tmp_path):
    group = typer.main.get_command(app)
    for name in gpu.TASKS:
        for attention in gpu.ATTENTIONS:
            words = gpu.train_command(name, attention, 0.25, tmp_path / "run")[3:]
            task = group.commands["train"].commands[words[1]]
            with task.make_context(words[1], list(words[2:])) as context:
                assert context.params["attention"] == attention
                assert context.params["mask_density"] == (0.25 if attention == "random_mask" else None)
                assert context.params.get("precision") in ("bf16-mixed", None)


@pytest.mark.parametrize("words", [["--part", "tests"], []])
def test_without_a_gpu_it_says_so_in_one_line(words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpu.py", *words, "--out", str(tmp_path / "out")])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        run_command(gpu.app, "gpu")
    assert stop.value.code == 2 and "a GPU that torch can use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
