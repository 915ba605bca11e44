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
from tests.faults.commands import TRAINING
from tests.faults.damage import cuts, damages

pytestmark = pytest.mark.bad_input
PREPARED = ("toy-listops", "corpus", "sst2")


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
        for what, changed in damages(content, 12).items():
            path.write_bytes(changed)
            if is_told(load_run, here / name):
                n_told += 1
            else:  # a blank, the date
                assert path.suffix == ".json" and numbers_of(load_run(here / name)) == numbers, (path, what)
        assert n_told > 24, path
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
    assert needed == ["best.safetensors"] * config.has_dev + ["config.json", "state.ckpt"]
    for file in needed:
        content = (begun / file).read_bytes()
        is_archive = file == "state.ckpt"  # in which some bits, and whatever stands before it, mean nothing
        for what, changed in (cuts(content) if is_archive else damages(content, 8)).items():
            (begun / file).write_bytes(changed)
            if changed.strip() != content.strip():
                assert is_told(fit, config, begun, resume=True, on_step=pytest.fail), (file, what)
        (begun / file).write_bytes(content)
    assert not Path("exploded").exists()
    fit(config, begun, resume=True, on_step=None)


@pytest.mark.parametrize("name", PREPARED)
def test_damage_to_prepared_examples_is_told(here, command_line, name):
    folder = here / "cache" / name
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for what, changed in damages(content, 8).items():
            path.write_bytes(changed)
            if changed.strip() != content.strip():
                assert is_told(open_prepared, folder), (path, what)
            is_told(open_prepared, folder, is_checked=False)  # what is listed is not read as a whole
        path.write_bytes(content[: len(content) // 2])
        code, _, err = command_line("data list")
        assert (code, err.count("\n")) in ((0, 0), (2, 1)), (path, err)
        path.write_bytes(content)
    open_prepared(folder)
    assert not Path("exploded").exists()


READERS = {
    "repeated": ["evaluate repeated", "inspect repeated"],
    "listops": ["evaluate listops", "inspect listops --examples 4"],
    "mlm": ["evaluate mlm", TRAINING["sst2"] + " --output new"],
    "sst2": ["evaluate sst2", "inspect sst2 --examples 4", "predict sst2 answers.tsv"],
    **{f"{name}-begun": [f"{TRAINING[name]} --output {name}-begun --resume"] for name in TRAINING},
    "cache/toy-listops": ["evaluate listops", "inspect listops --examples 4", TRAINING["listops"] + " --output new"],
    "cache/corpus": ["evaluate mlm", TRAINING["mlm"] + " --output new", "data prepare corpus --vocab-size 280"],
    "cache/sst2": ["evaluate sst2", TRAINING["sst2"] + " --output new", "data prepare sst2"],
}
NOT_READ = {  # by these commands, or not by all of them
    "mlm": ("metrics.csv",),
    **{f"{name}-begun": ("metrics.csv",) for name in TRAINING},
}


@pytest.mark.parametrize("folder", READERS)
def test_every_command_that_reads_a_damaged_file_says_so(here, command_line, folder):
    """Each file cut in half: exit code 2, one line that names the place, and nothing written."""
    before = {path.name for path in here.iterdir()}
    for path in sorted((here / folder).iterdir()):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        for command in READERS[folder]:
            if path.name in NOT_READ.get(folder, ()):
                continue
            code, _, err = command_line(command)
            assert code == 2 and err.count("\n") == 1 and folder.split("/")[-1] in err, (command, path, err)
        path.write_bytes(content)
    assert {path.name for path in here.iterdir()} == before


def test_files_of_another_run_are_told(here):
    """Each file of a run in the place of another run's."""
    for a, b in (("listops", "sst2"), ("sst2", "mlm"), ("mlm", "listops"), ("repeated", "listops")):
        for path in sorted((here / a).iterdir()):
            content, other = path.read_bytes(), here / b / path.name
            if other.exists() and other.read_bytes() != content:  # two may have one tokeniser
                shutil.copy(other, path)
                assert is_told(load_run, here / a), (a, b, path.name)
                path.write_bytes(content)
        shutil.copy(here / f"{b}-begun" / "state.ckpt", here / f"{a}-begun")
        assert is_told(fit, read_config(here / a), here / f"{a}-begun", resume=True, on_step=None), (a, b)


def test_runs_and_examples_of_older_versions_still_open(here):
    """Checksums are asked for where there are any."""
    from safetensors.torch import load_file, save_file

    model = here / "listops" / "model.safetensors"
    save_file(load_file(model), model)
    load_run(here / "listops")
