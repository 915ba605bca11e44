"""Commands whose writes fail, or that are stopped: they say so in a line, leave whole files, and can be continued."""

import errno
import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest

from sbmt.experiments import locks
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.module import TrainingModule
from tests.faults.commands import TRAINING, WRITING, make_qnli
from tests.faults.wholeness import files_below, has_same_numbers

pytestmark = pytest.mark.bad_input
STOPPED = "sbmt: stopped\n"
FAILURES = {
    "Ctrl-C": (KeyboardInterrupt(), 130, STOPPED),
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
}
"""What a write may meet: the error, the exit code, and what the line says."""

MOMENTS = {  # the write that fails first, counted from 0
    **{"train repeated": 3, "train listops": 5, "train mlm": 5, "train sst2": 5},
    **{"demo": 2, "study": 7, "sweep": 4, "glue": 6, "data prepare": 2, "data prepare corpus": 4},
    **{"predict": 0, "inspect": 0, "inspect listops": 0, "sample": 0, "bench": 1, "cost": 1},
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


@pytest.mark.parametrize("name", ["study", "sweep", "demo", "data prepare corpus"])
def test_a_command_stopped_at_every_write_ends_with_the_same_bytes(here, command_line, monkeypatch, name):
    """Ctrl-C at later and later writes, the same command again each time."""
    line, place = WRITING[name], here / ("cache/corpus-reduced" if name.startswith("data") else "new")
    for number in itertools.count():
        with monkeypatch.context() as patch:
            tried = fail_from(patch, number, KeyboardInterrupt())
            code, _, err = command_line(line)
        if len(tried) <= number:
            break
        assert (code, err) == (130, STOPPED)
        files_below(here)
    assert code == 0 and number > 3
    parts = files_below(place)
    shutil.rmtree(place)
    assert command_line(line)[0] == 0
    whole = files_below(place)
    assert set(whole) == set(parts)
    assert [path for path in whole if whole[path] != parts[path] and not path.endswith(("result.json", ".png"))] == []


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


@pytest.mark.parametrize("name", TRAINING)
def test_an_interrupted_run_resumes_to_the_same_numbers(here, command_line, name):
    assert command_line(f"{TRAINING[name]} --output {name}-begun --resume")[0] == 0
    assert has_same_numbers(here / f"{name}-begun", here / name)


def test_ctrl_c_while_a_run_is_tested_is_answered_in_a_line(here, command_line, monkeypatch):
    """Lightning would end the process by itself, with exit code 1."""
    line = f"{TRAINING['listops']} --output new"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingModule, "test_step", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        code, _, err = command_line(line)
    assert (code, err) == (130, STOPPED)
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "new", here / "listops")


@pytest.mark.parametrize(
    "name", [*(f"train {name}" for name in TRAINING), "demo", "study", "sweep", "glue", "data prepare"]
)
def test_a_command_does_not_write_where_another_does(here, command_line, monkeypatch, name):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    make_qnli(here)
    part = {"sweep": "new/listops", "glue": "new/mlm", "data prepare": "cache/.qnli.part"}.get(name, "new")
    before = files_below(here)
    with only_writer(here / part):
        code, _, err = command_line(WRITING[name])
    assert code == 2 and err.count("\n") == 1 and f"into {part}" in err.replace(f"{here}/", ""), err
    assert files_below(here) == before


@pytest.mark.parametrize("name", TRAINING)
def test_a_run_that_is_still_being_trained_is_not_resumed(here, command_line, monkeypatch, name):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    before = files_below(here / f"{name}-begun")
    with only_writer(here / f"{name}-begun"):
        code, _, err = command_line(f"{TRAINING[name]} --output {name}-begun --resume")
    assert code == 2 and "only process" in err
    assert files_below(here / f"{name}-begun") == before
