"""Damaged files and wrong command lines cause a one-line error, and nothing is written.

Checksums do not cover weights, ``seconds`` and ``manifest`` in ``result.json``, figures, and the summary of a study,
which is rewritten from its runs.
"""

import os
import shutil
from pathlib import Path

import pytest

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import load_run, read_config
from tests.faults.conftest import TRAINING
from tests.faults.damage import cuts, damages

pytestmark = pytest.mark.bad_input


def is_told(call, *arguments, **keywords):
    """Returns whether a call raises the library's error, in one line; any other error fails the test."""
    try:
        call(*arguments, **keywords)
    except SbmtError as error:
        assert "\n" not in str(error)
        return True
    return False


def numbers_of(run):
    result = run.result()
    del result["seconds"], result["manifest"]
    return result, {name: weight.tolist() for name, weight in run.model.state_dict().items()}


def resume(folder, on_step=pytest.fail):
    """Resumes a run, and by default fails the test if a step is taken from the damaged checkpoint."""
    fit(read_config(folder), folder, resume=True, on_step=on_step)


READ = {
    "repeated": load_run,
    "sst2": load_run,
    "repeated-begun": resume,
    "sst2-begun": resume,
    "cache/toy-listops": open_prepared,
    "cache/sst2": open_prepared,
}
"""The first words of every command that reads this folder."""


@pytest.mark.parametrize("name", READ)
def test_damage_is_told(here, name):
    folder, read = here / name, READ[name]
    numbers = numbers_of(load_run(folder)) if read is load_run else None
    for path in sorted(folder.iterdir()):
        if read is resume and path.suffix == ".csv":  # not part of a checkpoint
            continue
        content = path.read_bytes()
        is_archive = path.suffix == ".ckpt"  # some bits of it, and anything before it, have no meaning
        n_flips = 0 if path.suffix == ".safetensors" else 8
        for what, changed in (cuts(content) if is_archive else damages(content, n_flips)).items():
            path.write_bytes(changed)
            if changed.strip() != content.strip() and not is_told(read, folder):
                assert path.name == "result.json" and numbers_of(load_run(folder)) == numbers, (path, what)
        path.write_bytes(content)
    assert not Path("exploded").exists()
    assert not is_told(read, folder, **{"on_step": None} if read is resume else {})


def test_files_of_another_run_are_told(here):
    """Each file of a run is replaced by another run's."""
    for a, b in (("listops", "sst2"), ("sst2", "mlm"), ("mlm", "listops"), ("repeated", "listops")):
        for path in sorted((here / a).iterdir()):
            content, other = path.read_bytes(), here / b / path.name
            if other.exists() and other.read_bytes() != content:  # two runs may share a tokeniser
                shutil.copy(other, path)
                assert is_told(load_run, here / a), (a, b, path.name)
                path.write_bytes(content)


@pytest.mark.parametrize(
    ("folder", "commands"),
    [
        ("repeated", ["evaluate repeated", "inspect repeated"]),
        ("mlm", ["evaluate mlm", TRAINING["sst2"] + " --output new"]),
        ("sst2", ["predict sst2 answers.tsv"]),
        ("listops-begun", [TRAINING["listops"] + " --output listops-begun --resume"]),
        ("cache/sst2", ["evaluate sst2", TRAINING["sst2"] + " --output new", "data prepare sst2"]),
    ],
)
def test_every_command_that_reads_a_damaged_file_says_so(here, command_line, folder, commands):
    """With each file cut in half: exit code 2, one line that names the file, and nothing written."""
    before = {path.name for path in here.iterdir()}
    for path in sorted((here / folder).iterdir()):
        if path.name == "metrics.csv" and folder != "repeated":
            continue
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        for command in commands:
            code, _, err = command_line(command)
            assert code == 2 and err.count("\n") == 1 and folder.split("/")[-1] in err, (command, path, err)
        path.write_bytes(content)
    assert {path.name for path in here.iterdir()} == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("cost --json cache", "cache to be a regular file, got a folder"),
        ("bench --quick --json .", "to be a regular file, got a folder"),
        (f"evaluate repeated --seed {1 << 63}", "seed in [0, 2⁶³)"),
        (f"train repeated-tokens --steps {10**30}", "steps < 2³¹"),
        ("evaluate nowhere", "the folder of a run"),
        ("evaluate answers.tsv", "answers.tsv"),
        ("inspect mlm", "a run on labelled examples"),
        ("predict listops answers.tsv", "task to be one of 'sst2'"),
        ("train listops --data nowhere", "nowhere"),
        ("predict sst2 answers.tsv --output answers.tsv/new.tsv", "cannot write"),
        ("predict sst2 answers.tsv --output ./answers.tsv", "an output file other than the input answers.tsv"),
    ],
)
def test_mistakes_are_answered_in_a_line(here, command_line, line, words):
    before = sorted(os.listdir(here))
    code, _, err = command_line(line)
    assert (
        code == 2 and words in err and err.count("\n") == 1 and err.startswith(("sbmt: expected ", "sbmt: cannot "))
    ), err
    assert sorted(os.listdir(here)) == before
