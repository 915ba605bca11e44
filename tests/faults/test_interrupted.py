"""Commands that are stopped or cannot write report it in one line, leave complete files, and can be resumed."""

import csv
import errno
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sbmt.experiments.files import LOCK
from sbmt.experiments.training.lightning_module import TrainingModule
from tests.experiments.training.runs import has_same_numbers
from tests.faults.conftest import TRAINING

pytestmark = pytest.mark.bad_input

STOPPED = "sbmt: stopped\n"
FAILURES = {
    "Ctrl-C": (KeyboardInterrupt(), 130, STOPPED),
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
}
"""Errors of a write, each with the exit code and the words of the message."""

WRITING = {
    **{f"{command} --output new": 3 if name == "repeated" else 5 for name, command in TRAINING.items()},
    "study tiny --output new --figure new.png": 6,
    "data prepare corpus --vocab-size 280 --reduced": 0,
    "predict sst2 answers.tsv --output new.tsv": 0,
    "inspect listops --examples 4 --output new.png": 0,
    "bench --quick --suite attention --json new.json": 0,
}
"""Commands that write files, with the number of the write that fails first, counted from 0."""


def read_whole(path):
    """Reads any file that a command writes, to its end."""
    content = path.read_bytes()
    if path.suffix == ".json":
        json.loads(content)
    elif path.suffix == ".png":
        assert content.startswith(b"\x89PNG\r\n\x1a\n") and content.endswith(b"IEND\xaeB`\x82"), path
    elif path.suffix == ".safetensors":
        load_file(path)
    elif path.suffix == ".ckpt":
        assert torch.load(path, weights_only=True)["global_step"] > 0
    elif path.suffix in (".csv", ".tsv"):
        rows = csv.reader(content.decode().splitlines(), delimiter="\t" if path.suffix == ".tsv" else ",")
        assert content.endswith(b"\n") and len({len(row) for row in rows}) == 1, path
    elif path.suffix in (".npy", ".npz"):
        np.load(path, allow_pickle=False)
    else:
        assert path.suffix == ".bin", f"{path} is of no known kind"
    return content


def files_below(folder):
    """Returns all files by path, except locks and the user's files, and checks that each of them is complete."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "data"]
    return {str(path): read_whole(path) for path in paths if path.name != LOCK}


def fail_from(patch, number, error):
    """Makes the write with this number, counted from 0, and all later writes fail."""
    fsync, tried = os.fsync, []

    def failing(handle):
        tried.append(handle)
        if len(tried) > number:
            raise error
        fsync(handle)

    patch.setattr(os, "fsync", failing)


@pytest.fixture
def press_ctrl_c():
    """Returns a function that sends Ctrl-C, which has an effect even if the tests were started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda *_: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("line", WRITING)
def test_a_write_that_fails_is_reported_and_leaves_whole_files(here, command_line, monkeypatch, line, failure):
    error, expected, words = FAILURES[failure]
    before = files_below(here)
    with monkeypatch.context() as patch:
        fail_from(patch, WRITING[line], error)
        code, out, err = command_line(line)
    assert code == expected and words in err and err.count("\n") == 1, err
    after = files_below(here)
    assert {path: after[path] for path in before} == before
    assert not list(here.rglob(".*.part")) or line.startswith("data prepare")
    assert failure != "Ctrl-C" or ("--resume" in out) == line.startswith("train")


@pytest.mark.parametrize("name", TRAINING)
def test_a_run_that_was_killed_resumes_to_the_same_numbers(here, command_line, monkeypatch, name):
    """A killed process cannot remove the file that it was writing."""
    line = f"{TRAINING[name]} --output new"
    with monkeypatch.context() as patch:
        fail_from(patch, WRITING[line], KeyboardInterrupt())
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        assert command_line(line)[0] == 130
    assert list((here / "new").glob(".*.part")) != []
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "new", here / name)
    assert {path.name for path in (here / "new").iterdir()} == {path.name for path in (here / name).iterdir()}


def test_ctrl_c_while_a_run_is_tested_is_answered_in_a_line(here, command_line, monkeypatch, press_ctrl_c):
    """Lightning alone would end the process with exit code 1."""
    line = f"{TRAINING['listops']} --output new"
    with monkeypatch.context() as patch:
        patch.setattr(TrainingModule, "test_step", press_ctrl_c)
        code, _, err = command_line(line)
    assert (code, err) == (130, STOPPED)
    assert command_line(f"{line} --resume")[0] == 0
    assert has_same_numbers(here / "new", here / "listops")
