"""Disks that are full: one line, exit code 2, old files as they were, and with room it goes on."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.commands import TRAINING, WRITING
from tests.faults.failing import FULL, until_done
from tests.faults.places import files_of_at_most, small_disk
from tests.faults.wholeness import files_below, has_same_numbers

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize("name", ["study", "sweep", "data prepare corpus"])
def test_a_disk_that_fills_at_every_write_is_told_and_with_room_all_ends_well(here, command_line, monkeypatch, name):
    """Full from ever later writes on, the same command each time."""

    def check(found):
        code, _, err = found
        assert code == 2 and err.count("\n") == 1 and "No space left" in err, err
        files_below(here)

    n_calls, found = until_done(monkeypatch, lambda: command_line(WRITING[name]), FULL, check)
    assert found[0] == 0 and n_calls > 3
    if name == "sweep":
        assert has_same_numbers(here / "new" / "listops" / "full-seed0", here / "listops")
    if name == "study":
        assert has_same_numbers(here / "new" / "full-seed0", here / "repeated")


@pytest.mark.parametrize("name", TRAINING)
def test_a_checkpoint_that_finds_no_room_leaves_the_one_before(here, command_line, name):
    """The kernel takes a part of each file and refuses the rest."""
    before = files_below(here / f"{name}-begun")
    line = f"{TRAINING[name]} --output {name}-begun --resume"
    with files_of_at_most(1500):
        code, _, err = command_line(line)
    assert code == 2 and err.count("\n") == 1 and "File too large" in err, err
    after = files_below(here / f"{name}-begun")
    assert {path: after[path] for path in before if path != "metrics.csv"} == {
        path: before[path] for path in before if path != "metrics.csv"
    }
    assert command_line(line)[0] == 0
    assert has_same_numbers(here / f"{name}-begun", here / name)


@pytest.mark.parametrize("name", ["predict", "inspect", "inspect listops", "sample", "bench", "cost"])
def test_what_finds_no_room_leaves_the_old_file(here, command_line, name):
    target = here / WRITING[name].rpartition(" ")[2]
    target.write_bytes(b"old")
    with files_of_at_most(8):
        code, _, err = command_line(WRITING[name])
    assert code == 2 and err.count("\n") == 1 and "File too large" in err and target.name in err, err
    assert target.read_bytes() == b"old" and not list(here.glob(".*"))


def test_examples_that_find_no_room_are_made_once_there_is_some(here, command_line):
    line = WRITING["data prepare corpus"]
    before = files_below(here / "cache")
    with files_of_at_most(3000):
        code, _, err = command_line(line)
    assert code == 2 and err.count("\n") == 1 and "File too large" in err, err
    after = files_below(here / "cache")
    assert {path: after[path] for path in before} == before
    assert command_line(line)[0] == 0 and not list((here / "cache").glob(".*"))


def test_on_a_disk_of_its_own_a_study_ends_in_a_line_and_goes_on_once_it_has_room(here, command_line):
    (here / "new").mkdir()
    with small_disk(here / "new", 24 * 1024):
        code, _, err = command_line(WRITING["study"])
        assert code == 2 and err.count("\n") == 1 and "No space left" in err, err
        assert [path for path in files_below(here / "new") if path.endswith(".part")] == []
        subprocess.run(["mount", "-o", "remount,size=2m", here / "new"], check=True)
        assert command_line(WRITING["study"])[0] == 0
        assert has_same_numbers(here / "new" / "full-seed0", here / "repeated")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_finds_no_room_is_told(tmp_path):
    """As when it goes into a file on a full disk; Python would try again while it ends, and print a traceback."""
    command = [sys.executable, "-m", "sbmt", "sample", "--n-tokens", "8"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "No space left" in done.stderr
