"""The script that measures on a machine with a GPU, its processes played."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sbmt.experiments.files import read_json, write_json

ROOT = Path(__file__).parents[3]


@pytest.fixture
def script(monkeypatch):
    spec = importlib.util.spec_from_file_location("measure_gpu", ROOT / "results" / "measure_gpu.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "measure_gpu", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "about", lambda: {"gpu": "played"})
    return module


def play(script, monkeypatch, act):
    """Replaces processes by ``act(words, seconds)``; remembers the commands."""
    commands = []

    def call(command, seconds, log=None):
        words = [str(word) for word in command]
        commands.append(words)
        if log is not None:
            log.write_text("begun\nSbmtError: no\n")
        return act(words, seconds)

    monkeypatch.setattr(script, "call", call)
    return commands


def test_a_process_ends_with_its_time(script, tmp_path):
    log = tmp_path / "log"
    assert script.call([sys.executable, "-c", "import results.tables; print('found')"], 60.0, log) == 0
    assert log.read_text() == "found\n"  # the source tree is where it looks
    wait = (
        "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: exit(print('kept')))\nprint('on', flush=True)\n"
    )
    assert script.call([sys.executable, "-c", wait + "time.sleep(100)"], 1.0, log) is None
    assert log.read_text() == "on\nkept\n"
    assert script.call([sys.executable, "-c", "exit(3)"], None, log) == 3


def test_tests_are_summarised(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "TESTS", ("tests/nowhere", "tests/graph/test_csr.py"))

    def act(words, seconds):
        (tmp_path / "tests.log").write_text("..F\nFAILED tests/x.py::y - no\n== 1 failed, 2 passed in 1s ==\n")
        return 1

    commands = play(script, monkeypatch, act)
    script.measure_tests(tmp_path, script.Clock(None))
    found = read_json(tmp_path / "tests.json")
    assert "tests/graph/test_csr.py" in commands[0] and "tests/nowhere" not in commands[0]
    assert found["summary"] == "1 failed, 2 passed in 1s" and found["failed"] == ["FAILED tests/x.py::y - no"]
    assert (found["exit_code"], found["is_stopped"], found["manifest"]) == (1, False, {"gpu": "played"})


def bench_file(path, **found):
    empty = {"cases": [], "left_out": [], "lost": [], "trying": None}
    write_json(path, {"suites": {"gpu": {"found": empty | found}}})


def test_the_benchmark_goes_on_after_a_loss_until_it_gets_no_further(script, tmp_path, monkeypatch):
    path = tmp_path / "bench.json"
    states = [
        {"left_out": ["b"], "lost": ["x"], "cases": ["a"]},
        {"left_out": [], "trying": {"contestant": "y"}, "lost": ["x"], "cases": ["a"]},  # the process crashed
        {"lost": ["x", "y"], "cases": ["a", "b"]},
    ]
    commands = play(script, monkeypatch, lambda words, seconds: bench_file(path, **states.pop(0)))
    script.measure_bench(tmp_path, script.Clock(None), True)
    assert states == [] and ["--resume" in words for words in commands] == [False, True, True]
    assert all("--quick" in words and "--minutes" not in words for words in commands)

    path.unlink()
    commands = play(script, monkeypatch, lambda words, seconds: 2)  # it does not even begin
    script.measure_bench(tmp_path, script.Clock(30.0), False)
    assert len(commands) == 1
    minutes = float(commands[0][commands[0].index("--minutes") + 1])
    assert 28 < minutes <= 29


def finishing(script, folder, unfinished=()):
    """What runs would do: finish at once, but for those that only get to step 50."""

    def act(words, seconds):
        if "train" not in words:
            return 2 if words[-1] == "image" else 0
        mine = Path(words[words.index("--output") + 1])
        mine.mkdir(parents=True, exist_ok=True)
        (mine / "metrics.csv").write_text("step,loss\n50,1.5\n")
        if mine.name in unfinished:
            (mine / "state.safetensors").write_bytes(b"")
            return None
        write_json(mine / "result.json", {"test": {"accuracy": 0.9, "density": 0.125}, "seconds": 1.0})
        return 0

    return act


def test_runs_are_finished_stopped_or_skipped_and_go_on(script, tmp_path, monkeypatch):
    commands = play(script, monkeypatch, finishing(script, tmp_path, unfinished={"listops-sbm"}))
    script.measure_runs(tmp_path, script.Clock(None))
    runs = read_json(tmp_path / "runs.json")["runs"]
    assert list(runs) == [job.name for job in script.JOBS]
    status = {name: one["status"] for name, one in runs.items()}
    assert status["repeated-tokens-random_mask"] == "finished" and status["listops-full"] == "finished"
    assert runs["listops-sbm"]["status"] == "stopped" and runs["listops-sbm"]["last"] == {"step": "50", "loss": "1.5"}
    assert status["listops-random_mask"] == status["image-full"] == "skipped"
    masked = next(words for words in commands if "random_mask" in words)
    assert masked[masked.index("--mask-density") + 1] == "0.125"
    assert [words[-1] for words in commands if "prepare" in words] == ["listops", "image", "text"]

    commands = play(script, monkeypatch, finishing(script, tmp_path))
    script.measure_runs(tmp_path, script.Clock(None))
    names = [Path(words[words.index("--output") + 1]).name for words in commands if "train" in words]
    assert names == ["listops-sbm", "listops-random_mask"]
    assert "--resume" in next(words for words in commands if "train" in words)
    assert {one["status"] for one in read_json(tmp_path / "runs.json")["runs"].values()} == {"finished", "skipped"}


def test_a_run_that_fails_says_why_and_no_run_begins_after_the_time(script, tmp_path, monkeypatch):
    play(script, monkeypatch, lambda words, seconds: 1)
    monkeypatch.setattr(script, "JOBS", script.JOBS[:2])
    script.measure_runs(tmp_path, script.Clock(None))
    runs = read_json(tmp_path / "runs.json")["runs"]
    assert runs["repeated-tokens-full"]["status"] == "failed" and "SbmtError: no" in runs["repeated-tokens-full"]["why"]
    script.measure_runs(tmp_path, script.Clock(0.0))
    assert json.loads((tmp_path / "runs.json").read_text())["runs"]["repeated-tokens-sbm"]["status"] == "not begun"


def test_its_commands_are_ones_that_the_command_line_takes(script, tmp_path):
    import typer

    from sbmt.experiments.cli import app

    group = typer.main.get_command(app)
    for job in script.JOBS:
        words = job.command(tmp_path, 0.25)[3:]
        train = group.commands["train"]
        task = train.commands[words[1]]
        with task.make_context(words[1], list(words[2:])) as context:
            assert context.params["attention"] == job.attention
            assert context.params["mask_density"] == (0.25 if job.attention == "random_mask" else None)
            assert context.params.get("precision") in ("bf16-mixed", None)


@pytest.mark.parametrize("words", [["--part", "tests"], []])
def test_without_a_gpu_it_says_so_in_one_line(words, tmp_path, capsys, monkeypatch, script):
    from sbmt.command import run_command

    monkeypatch.setattr(sys, "argv", ["measure_gpu.py", *words, "--out", str(tmp_path / "out")])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        run_command(script.app, "measure_gpu")
    assert stop.value.code == 2 and "a GPU that torch can use" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
