"""Commands whose writes fail, or that are stopped: they say so in a line, leave whole files, and can be continued."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from pathlib import Path

import pytest
from scipy.sparse import csr_array

from sbmt.command import run_command
from sbmt.experiments import locks
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.lightning_module import TrainingModule
from tests.experiments.training.runs import has_same_numbers
from tests.faults.commands import TRAINING, WRITING, make_qnli
from tests.faults.wholeness import files_below
from theory.path_cover import solve_cover

pytestmark = pytest.mark.bad_input
ROOT = Path(__file__).parents[2]
WAIT = 600
"""Seconds after which a process counts as hanging, on however busy a machine."""

STOPPED = "sbmt: stopped\n"
FAILURES = {
    "Ctrl-C": (KeyboardInterrupt(), 130, STOPPED),
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
}
"""What a write may meet: the error, the exit code, and what the line says."""

MOMENTS = {  # the write that fails first, counted from 0
    **{"train repeated": 3, "train listops": 5, "train mlm": 5, "train sst2": 5},
    **{"demo": 2, "study": 7, "glue": 6, "data prepare": 2, "data prepare corpus": 4},
    **{"predict": 0, "inspect": 0, "inspect listops": 0, "sample": 0, "bench": 0, "cost": 0},
}
assert set(MOMENTS) == set(WRITING)


def fail_from(patch, number, error):
    """Makes the write of that number, counted from 0, and all later ones fail; returns the list of writes tried."""
    fsync, tried = os.fsync, []

    def failing(handle):
        tried.append(handle)
        if len(tried) > number:
            raise error
        fsync(handle)

    patch.setattr(os, "fsync", failing)
    return tried


def press_ctrl_c(*_):
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def hears_ctrl_c():
    """Even where the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(line, folder):
    """``python -m sbmt`` in a process group of its own, with Ctrl-C as a terminal has it."""
    return subprocess.Popen(
        [sys.executable, "-m", "sbmt", *line.split()],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    )


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("name", WRITING)
def test_a_write_that_fails_is_reported_and_leaves_whole_files(here, command_line, monkeypatch, name, failure):
    error, expected, words = FAILURES[failure]
    if name == "data prepare":
        make_qnli(here)
    before = files_below(here)
    with monkeypatch.context() as patch:
        fail_from(patch, MOMENTS[name], error)
        code, out, err = command_line(WRITING[name])
    assert code == expected and words in err and err.count("\n") == 1, err
    after = files_below(here)
    assert {path: after[path] for path in before} == before
    assert not list(here.rglob(".*.part")) or name.startswith("data prepare")
    assert failure != "Ctrl-C" or ("--resume" in out) == name.startswith("train")


@pytest.mark.parametrize("name", TRAINING)
def test_a_run_that_was_killed_resumes_to_the_same_numbers(here, command_line, monkeypatch, name):
    """A killed process cannot remove the file that it was writing."""
    line = f"{TRAINING[name]} --output killed"
    with monkeypatch.context() as patch:
        fail_from(patch, MOMENTS[f"train {name}"], KeyboardInterrupt())
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        assert command_line(line)[0] == 130
    assert list((here / "killed").glob(".*.part")) != []
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "killed", here / name)
    assert {path.name for path in (here / "killed").iterdir()} == {path.name for path in (here / name).iterdir()}


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_a_run_is_tested_is_answered_in_a_line(here, command_line, monkeypatch):
    """Lightning would end the process by itself, with exit code 1."""
    line = f"{TRAINING['listops']} --output new"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingModule, "test_step", press_ctrl_c)
        code, _, err = command_line(line)
    assert (code, err) == (130, STOPPED)
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "new", here / "listops")


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_a_run_is_evaluated_is_answered_in_a_line(here, command_line, monkeypatch):
    before = files_below(here)
    monkeypatch.setattr(import_module("sbmt.experiments.training.evaluate"), "call_model", press_ctrl_c)
    code, _, err = command_line("evaluate listops")
    assert (code, err) == (130, STOPPED) and files_below(here) == before


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_the_solver_searches_ends_the_search(monkeypatch, capsys):
    """OR-tools would handle the signal itself, and Python handles none while it waits for compiled code."""
    from ortools.sat.python.cp_model import CpSolver

    is_told = threading.Event()

    def search(solver, _):
        assert not solver.parameters.catch_sigint_signal
        time.sleep(0.2)  # until the main thread waits for the result
        press_ctrl_c()
        assert is_told.wait(WAIT)

    monkeypatch.setattr(CpSolver, "solve", search)
    monkeypatch.setattr(CpSolver, "stop_search", lambda _: is_told.set())
    with pytest.raises(SystemExit) as stop:
        run_command(lambda: solve_cover(csr_array([[0, 1], [1, 0]]), WAIT), "theory")
    assert (stop.value.code, capsys.readouterr().err) == (130, "theory: stopped\n")
    assert is_told.is_set()


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc to see which processes there are")
def test_ctrl_c_ends_the_workers_of_a_study_too(here):
    """A terminal sends it to them as well, and they print nothing."""
    with start("demo --workers 2 --output new", here) as study:
        end = time.monotonic() + WAIT
        while study.poll() is None and not list((here / "new").glob("*/config.json")):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.killpg(study.pid, signal.SIGINT)
        _, err = study.communicate(timeout=WAIT)
    assert (study.returncode, err) == (130, STOPPED), err
    with pytest.raises(ProcessLookupError):  # nobody is left in the group
        while time.monotonic() < end:
            os.killpg(study.pid, 0)
            time.sleep(0.01)
    files_below(here)


def test_of_two_processes_that_train_in_one_folder_one_ends_well(here):
    both = [start(WRITING["train repeated"], here) for _ in range(2)]
    errors = [process.communicate(timeout=WAIT)[1] for process in both]
    (good, _), (bad, words) = sorted((p.returncode, err) for p, err in zip(both, errors, strict=True))
    assert (good, bad) == (0, 2) and words.startswith("sbmt: expected ") and words.count("\n") == 1, errors
    assert has_same_numbers(here / "new", here / "repeated")


@pytest.mark.parametrize("name", ["train repeated", "train sst2", "study", "glue", "data prepare"])
def test_a_command_does_not_write_where_another_does(here, command_line, monkeypatch, name):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    make_qnli(here)
    part = {"glue": "new/mlm", "data prepare": "cache/.qnli.part"}.get(name, "new")
    before = files_below(here)
    with only_writer(here / part):
        code, _, err = command_line(WRITING[name])
    assert code == 2 and err.count("\n") == 1 and f"into {part}" in err.replace(f"{here}/", ""), err
    assert files_below(here) == before
