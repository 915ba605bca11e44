"""Commands that are killed, stopped with Ctrl-C or SIGTERM, at any moment: what they leave is whole, and they go on."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.faults.commands import LISTOPS, THEORY, TRAINING, WRITING, make_qnli
from tests.faults.failing import until_done
from tests.faults.processes import WAIT, children_of, is_alive, signal_at, start
from tests.faults.wholeness import files_below, has_same_numbers

ROOT = Path(__file__).parents[2]
STOPPED = "sbmt: stopped\n"


@pytest.mark.parametrize(
    ("name", "number"), [("repeated", 2), ("repeated", 6), ("listops", 5), ("listops", 10), ("mlm", 8), ("sst2", 11)]
)
def test_a_run_killed_at_a_write_goes_on_to_the_same_numbers(here, command_line, name, number):
    """SIGKILL between the write of a file and its taking its place."""
    line = f"{TRAINING[name]} --output killed"
    killed = start(line, here, prepare=signal_at, given=("os", "replace", number, signal.SIGKILL))
    assert killed.end() == -signal.SIGKILL
    assert list((here / "killed").glob(".*.part")) != []  # nobody could tidy up
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "killed", here / name)
    assert {path.name for path in (here / "killed").iterdir()} == {path.name for path in (here / name).iterdir()}


@pytest.mark.parametrize(("name", "number"), [("study", 9), ("sweep", 8), ("glue", 13), ("data prepare", 3)])
def test_what_is_killed_goes_on_to_the_same_numbers_by_itself(here, command_line, name, number):
    """The same command again, without a word about what is there."""
    line = WRITING[name]
    if name == "data prepare":
        make_qnli(here)
    assert start(line, here, prepare=signal_at, given=("os", "replace", number, signal.SIGKILL)).end() < 0
    whole = here / ("cache/qnli" if name == "data prepare" else "new")
    assert not (whole / "result.json").exists() and not (whole / "info.json").exists()
    assert command_line(line)[0] == 0
    killed = whole.rename(here / "killed")
    assert command_line(line)[0] == 0
    if name == "data prepare":
        assert files_below(whole) == files_below(killed)
    runs = [path.parent.relative_to(whole) for path in sorted(whole.rglob("model.safetensors"))]
    assert all(has_same_numbers(killed / run, whole / run) for run in runs)
    assert len(runs) == {"study": 4, "sweep": 2, "glue": 3, "data prepare": 0}[name]
    assert not list(killed.rglob("*.part")) and not list((here / "cache").glob(".*.part"))


MOMENTS = {  # by command, the write at which Ctrl-C comes, counted from 0
    **{"train repeated": 3, "train listops": 5, "train mlm": 5, "train sst2": 5},
    **{"demo": 2, "study": 7, "sweep": 4, "glue": 6, "data prepare": 2, "data prepare corpus": 4},
    **{"predict": 0, "inspect": 0, "inspect listops": 0, "sample": 0, "bench": 1, "cost": 1},
}
assert set(MOMENTS) == set(WRITING)


@pytest.mark.parametrize("name", WRITING)
def test_ctrl_c_while_a_file_is_written_leaves_none_half_written(here, name):
    """A real signal: exit code 130, one line, and whole files alone."""
    if name == "data prepare":
        make_qnli(here)
    before = files_below(here)
    given = ("os", "fsync", MOMENTS[name], signal.SIGINT)
    stopped = start(WRITING[name], here, prepare=signal_at, given=given)
    assert (stopped.end(), stopped.err) == (130, STOPPED)
    after = files_below(here)
    assert {path: after[path] for path in before} == before
    assert ("--resume" in stopped.out) == name.startswith("train")


@pytest.mark.parametrize(
    ("line", "module", "function"),
    [
        ("evaluate listops", "sbmt.experiments.training.config", "open_prepared"),
        ("evaluate mlm", "sbmt.experiments.training.config", "open_prepared"),
        ("data list", "sbmt.experiments.cli.data", "open_prepared"),
        ("data prepare listops --reduced", "sbmt.experiments.data.prepared", "write_shard"),
        ("train listops", "sbmt.experiments.training.config", "open_prepared"),
        (TRAINING["listops"] + " --output new", "sbmt.experiments.training.fit", "describe"),  # its tests are done
    ],
)
def test_ctrl_c_elsewhere_is_answered_in_a_line(here, line, module, function):
    stopped = start(line, here, prepare=signal_at, given=(module, function, 0, signal.SIGINT))
    assert (stopped.end(), stopped.err) == (130, STOPPED)
    files_below(here)


def test_ctrl_c_while_a_run_is_tested_is_one(here, command_line):
    """Lightning ends the process by itself, with exit code 1, if it is let."""
    line = f"{TRAINING['listops']} --output new"
    stopped = start(line, here, prepare=interrupt_test_step)
    assert (stopped.end(), stopped.err) == (130, STOPPED)
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "new", here / "listops")


def interrupt_test_step():
    from sbmt.experiments.training.module import TrainingModule

    TrainingModule.test_step = lambda *_: os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("name", ["train repeated", "train listops", "demo", "data prepare corpus"])
def test_sigterm_is_answered_as_ctrl_c(here, name):
    before = files_below(here)
    given = ("os", "fsync", MOMENTS[name], signal.SIGTERM)
    stopped = start(WRITING[name], here, prepare=signal_at, given=given)
    assert (stopped.end(), stopped.err) == (143, STOPPED)
    assert files_below(here).items() >= before.items()


def test_theory_is_stopped_in_a_line(here):
    given = ("os", "fsync", 0, signal.SIGINT)
    stopped = start(THEORY, here, prepare=signal_at, given=given, module="theory.__main__")
    assert (stopped.end(), stopped.err) == (130, "theory: stopped\n")
    assert not list(here.glob("*new.json*"))


def test_a_command_within_another_program_leaves_its_signals_alone(here, command_line):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert command_line("data list")[0] == 0 and command_line("evaluate nowhere")[0] == 2
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_ctrl_c_while_the_solver_searches_is_one(monkeypatch):
    """OR-tools takes the signal for itself, if it is let; and Python hears of none while it is in a search itself."""
    from ortools.sat.python.cp_model import CpSolver
    from scipy.sparse import csr_array

    from theory.solver import Deadline, solve_circuit

    is_told = threading.Event()
    hear_ctrl_c()

    def search(solver, model):
        assert not solver.parameters.catch_sigint_signal
        while "result" not in functions_of(threading.main_thread()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        assert is_told.wait(WAIT)
        return solve(solver, model)

    solve = CpSolver.solve
    monkeypatch.setattr(CpSolver, "solve", search)
    monkeypatch.setattr(CpSolver, "stop_search", lambda _: is_told.set())
    with pytest.raises(KeyboardInterrupt):
        solve_circuit(csr_array([[0, 1], [1, 0]]), Deadline(WAIT), is_closed=True)
    assert is_told.is_set()


def hear_ctrl_c():
    """Even if whoever began the tests had it ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def functions_of(thread):
    """Where a thread is."""
    frame, names = sys._current_frames()[thread.ident], []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names


@pytest.mark.parametrize("name", ["study", "sweep", "demo", "data prepare corpus"])
def test_what_is_stopped_at_every_write_comes_to_its_end(here, command_line, monkeypatch, name):
    """Ctrl-C at ever later writes, the same command again each time: files are whole throughout, numbers as ever."""
    line = WRITING[name]

    def check(found):
        assert found[0] == 130 and found[2] == STOPPED
        assert not list(here.glob("new/**/*.part"))

    n_calls, found = until_done(monkeypatch, lambda: command_line(line), KeyboardInterrupt(), check)
    assert found[0] == 0 and n_calls > 3
    parts = files_below(here / "new") if "--output" in line else files_below(here / "cache")
    assert not any(".part" in path for path in parts)
    for path in ["new"] if "--output" in line else ["cache/corpus-reduced"]:
        shutil.rmtree(here / path)
    assert command_line(line)[0] == 0
    whole = files_below(here / "new") if "--output" in line else files_below(here / "cache")
    assert set(whole) == set(parts)
    assert [path for path in whole if whole[path] != parts[path] and not path.endswith(("result.json", ".png"))] == []


@pytest.mark.parametrize("moment", ["while workers start", "while workers train"])
def test_ctrl_c_ends_the_workers_too(here, command_line, moment):
    """At a terminal it reaches them as well, and they say nothing."""
    line = f"sweep listops {LISTOPS} --attention full --attention linear --seeds 2 --output new"
    sweep = start(f"{line} --workers 2", here)
    workers = set()

    def has_come():
        workers.update(children_of(sweep.group))
        n_begun = len(list((here / "new" / "listops").glob("*/config.json")))
        return len(workers) > 1 if moment == "while workers start" else n_begun > 0

    sweep.wait_for(has_come)
    time.sleep(0.3 if moment == "while workers start" else 0.0)  # Python has begun to import
    sweep.send(signal.SIGINT)
    assert (sweep.end(), sweep.err) == (130, STOPPED), sweep.err
    end = time.monotonic() + WAIT
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(is_alive, workers))
    if moment == "while workers train":
        files_below(here)
        assert command_line(line)[0] == 0
        assert has_same_numbers(here / "new" / "listops" / "full-seed0", here / "listops")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc to see how far an import has come")
@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("sbmt", "libtorch_python"),
        ("sbmt", "libllvmlite"),
        ("theory", "libtorch_python"),
    ],
)
def test_ctrl_c_while_python_still_imports_is_answered_in_a_line(tmp_path, module, library):
    command = [sys.executable, "-m", module, "--help"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    settings = {"cwd": tmp_path, "env": environment, "preexec_fn": hear_ctrl_c, "text": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **settings) as process:
        while process.poll() is None and library not in Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT)
    assert (process.returncode, err.strip()) == (130, STOPPED.strip())
