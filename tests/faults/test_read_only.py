"""Folders that may be read and not written: one line, exit code 2, and nothing changed."""

import shutil

import pytest

from tests.faults.commands import THEORY, TRAINING, WRITING
from tests.faults.places import read_only
from tests.faults.wholeness import files_below

pytestmark = pytest.mark.bad_input


@pytest.mark.parametrize("name", [name for name in WRITING if not name.startswith("data")])
def test_a_target_that_cannot_be_written_is_told(here, command_line, name):
    (here / "locked").mkdir()
    line = WRITING[name].replace(" new", " locked/new")
    with read_only(here / "locked"):
        code, _, err = command_line(line)
    assert code == 2 and err.count("\n") == 1 and "Permission denied" in err and "locked" in err, err
    assert files_below(here / "locked") == {}


@pytest.mark.parametrize("name", ["study", "bench", "cost"])
def test_a_second_target_that_cannot_be_written_is_told(here, command_line, name):
    """What was trained before is kept."""
    (here / "locked").mkdir()
    line = WRITING[name].replace(" new.json", " locked/new.json")
    with read_only(here / "locked"):
        code, _, err = command_line(line)
    assert code == 2 and err.count("\n") == 1 and "Permission denied" in err
    assert name != "study" or (here / "new" / "result.json").exists()


@pytest.mark.parametrize("name", TRAINING)
def test_a_run_whose_folder_became_read_only_is_told_and_kept(here, command_line, name):
    before = files_below(here / f"{name}-begun")
    line = f"{TRAINING[name]} --output {name}-begun --resume"
    with read_only(here / f"{name}-begun"):
        code, _, err = command_line(line)
    assert code == 2 and err.count("\n") == 1 and "Permission denied" in err
    assert files_below(here / f"{name}-begun") == before
    assert command_line(line)[0] == 0


@pytest.mark.parametrize("line", ["data prepare corpus --vocab-size 280 --reduced", "data prepare sst2 --replace"])
def test_a_cache_that_cannot_be_written_is_told(here, command_line, line):
    """Replacing needs rights as making does; what is there stays."""
    if "sst2" in line:
        (here / "data" / "SST-2" / "dev.tsv").write_bytes((here / "data" / "SST-2" / "train.tsv").read_bytes())
    before = files_below(here / "cache")
    with read_only(here / "cache"):
        code, _, err = command_line(line)
        assert command_line("data list")[0] == 0
    assert code == 2 and err.count("\n") == 1 and "Permission denied" in err
    assert files_below(here / "cache") == before


def test_what_only_reads_needs_no_rights_to_write(here, command_line):
    """Neither in the folder of the run nor in the cache; what is prepared is found to be so."""
    for name in ("repeated", "listops", "mlm", "sst2"):
        with read_only(here / name), read_only(here / "cache"):
            assert command_line(f"evaluate {name} --sequences 4")[0] == 0
    with read_only(here / "cache"):
        assert command_line("data prepare sst2")[0] == 0
        assert command_line(f"{TRAINING['listops']} --output new")[0] == 0


def test_files_that_may_not_be_read_are_told(here, command_line):
    """A configuration, weights, prepared examples, a table, a tokeniser."""
    for path, line in (
        ("listops/config.json", "evaluate listops"),
        ("listops/model.safetensors", "evaluate listops"),
        ("sst2/tokenizer.json", "evaluate sst2"),
        ("cache/toy-listops/info.json", "evaluate listops"),
        ("cache/toy-listops/symbols.bin", "evaluate listops"),
        ("cache/toy-listops/labels.npy", "evaluate listops"),
        ("answers.tsv", "predict sst2 answers.tsv"),
        ("data/lm/tiny.train.txt", "data prepare corpus --vocab-size 280 --reduced"),
        ("data/SST-2/train.tsv", "data prepare sst2"),
    ):
        (here / path).chmod(0)
        with read_only(here):
            code, _, err = command_line(line)
        assert code == 2 and err.count("\n") == 1 and "ermission denied" in err, (path, err)
        (here / path).chmod(0o644)


def test_the_theory_is_told_too(here, monkeypatch, capsys):
    from sbmt.command import run_command
    from theory.__main__ import app

    (here / "locked").mkdir()
    monkeypatch.setattr("sys.argv", ["theory", *THEORY.replace("new", "locked/new").split()])
    with read_only(here / "locked"), pytest.raises(SystemExit) as stop:
        run_command(app, "theory")
    err = capsys.readouterr().err
    assert stop.value.code == 2 and err.startswith("theory: expected to write") and err.count("\n") == 1
    shutil.rmtree(here / "locked")
