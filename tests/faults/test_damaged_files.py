"""Files that hold something else than was written: told in a line, and never taken for numbers.

What has no checksum, and need not have one: ``seconds`` and ``manifest`` in ``result.json``, figures, and the summary
of a study, which is written anew from its runs.
"""

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
    """Whether a call raises the library's error, in one line; any other error fails the test."""
    try:
        call(*arguments, **keywords)
    except SbmtError as error:
        assert "\n" not in str(error)
        return True
    return False


@pytest.mark.parametrize("name", ["repeated", "sst2"])
def test_damage_to_a_finished_run_is_told(here, name):
    """By loading it, which all commands begin with."""
    numbers = numbers_of(load_run(here / name))
    for path in sorted((here / name).iterdir()):
        content = path.read_bytes()
        n_told = 0
        for what, changed in damages(content, 8).items():
            path.write_bytes(changed)
            if is_told(load_run, here / name):
                n_told += 1
            else:  # a blank, the date
                assert path.suffix == ".json" and numbers_of(load_run(here / name)) == numbers, (path, what)
        assert n_told > 14, path
        path.write_bytes(content)
    assert not Path("exploded").exists()


def numbers_of(run):
    result = run.result()
    del result["seconds"], result["manifest"]
    return result, {name: weight.tolist() for name, weight in run.model.state_dict().items()}


@pytest.mark.parametrize("name", ["repeated", "sst2"])
def test_damage_to_an_interrupted_run_is_told(here, name):
    """Nothing is trained from a checkpoint that is another; what is no part of one does not matter."""
    begun = here / f"{name}-begun"
    config = read_config(begun)
    needed = sorted(path.name for path in begun.iterdir() if path.name != "metrics.csv")
    assert needed == ["best.safetensors"] * (not config.is_generated) + ["config.json", "state.ckpt"]
    for file in needed:
        content = (begun / file).read_bytes()
        is_archive = file == "state.ckpt"  # in which some bits, and whatever stands before it, mean nothing
        for what, changed in (cuts(content) if is_archive else damages(content, 4)).items():
            (begun / file).write_bytes(changed)
            if changed.strip() != content.strip():
                assert is_told(fit, config, begun, resume=True, on_step=pytest.fail), (file, what)
        (begun / file).write_bytes(content)
    assert not Path("exploded").exists()
    fit(config, begun, resume=True, on_step=None)


@pytest.mark.parametrize("name", ["toy-listops", "sst2"])
def test_damage_to_prepared_examples_is_told(here, name):
    folder = here / "cache" / name
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for what, changed in damages(content, 8).items():
            path.write_bytes(changed)
            if changed.strip() != content.strip():
                assert is_told(open_prepared, folder), (path, what)
        path.write_bytes(content)
    open_prepared(folder)
    assert not Path("exploded").exists()


def test_files_of_another_run_are_told(here):
    """Each file of a run in the place of another run's."""
    for a, b in (("listops", "sst2"), ("sst2", "mlm"), ("mlm", "listops"), ("repeated", "listops")):
        for path in sorted((here / a).iterdir()):
            content, other = path.read_bytes(), here / b / path.name
            if other.exists() and other.read_bytes() != content:  # two may have one tokeniser
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
    """Each file cut in half: exit code 2, one line that names the place, and nothing written."""
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
