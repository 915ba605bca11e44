"""Folders, files and variables that are not what a run expects: one line each, and nothing is lost."""

import json
import pickle
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.files import read_tensors, write_json, write_tensors
from sbmt.experiments.training import RepeatedTokensConfig, fit, load_run, run
from sbmt.experiments.training.lightning_module import WholeFiles
from tests.experiments.training.runs import Stopped, stop_after
from tests.faults.damage import Bomb, cuts, flips

pytestmark = pytest.mark.bad_input
TINY = RepeatedTokensConfig(length=8, batch_size=4, steps=3, d_model=8, d_hidden=8, test_sequences=16)
TINY = TINY.override(n_clusters=4)
IO = WholeFiles()
STATE = {"origin": {"examples": None}, "global_step": 3, "state_dict": {"a": torch.arange(300.0)}}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_a_process_that_runs_alone_is_the_first(tmp_path, monkeypatch, name):
    """Whatever a cluster has left in the environment: a finished run is refused as ever."""
    monkeypatch.setenv(name, "1")
    fit(TINY, tmp_path / "run")
    before = files_of(tmp_path / "run")
    with pytest.raises(SbmtError, match="a new or empty folder"):
        fit(TINY, tmp_path / "run")
    assert files_of(tmp_path / "run") == before


def test_a_run_is_finished_with_its_result(tmp_path, monkeypatch):
    """A disk that is full after the weights and before the result: the run begins anew, also with ``resume``."""

    def fail(path, *arguments, **options):
        if path.name == "result.json":
            raise SbmtError("to write", "a full disk", "free some")
        write_json(path, *arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(SbmtError, match="a full disk"):
        patch.setattr(run, "write_json", fail)
        fit(TINY, tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(SbmtError, match="one that was interrupted"):
        load_run(tmp_path / "run")
    again = fit(TINY, tmp_path / "run", resume=True)
    assert again.test == load_run(tmp_path / "run").test == fit(TINY).test


@pytest.mark.usefixtures("language")
@pytest.mark.parametrize("what", ["pretrained", "tokenizer"])
def test_fine_tuning_does_not_go_on_from_another_start(tmp_path, tiny_glue, tiny_mlm, language, what):
    if what == "pretrained":
        fit(tiny_mlm(), tmp_path / "mlm")
        config, other = tiny_glue(pretrained=str(tmp_path / "mlm")), tmp_path / "mlm" / "model.safetensors"
    else:
        other = tmp_path / "tokenizer.json"
        other.write_bytes((language / "corpus" / "tokenizer.json").read_bytes())
        config = tiny_glue(tokenizer=str(other))
    with pytest.raises(Stopped):
        fit(config, tmp_path / "run", on_step=stop_after(3))
    if what == "pretrained":
        write_tensors(other, {name: x + 0.1 for name, x in read_tensors(other).items()})
    else:
        content = json.loads(other.read_text())
        content["model"]["merges"] = content["model"]["merges"][:-1]
        other.write_text(json.dumps(content))
    with pytest.raises(SbmtError, match=f"a checkpoint of this run, got one with other .*{what}"):
        fit(config, tmp_path / "run", resume=True, on_step=pytest.fail)


@pytest.mark.parametrize("name", ["config.json", "sub/notes.txt"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(SbmtError, match="other files"):
        fit(TINY, tmp_path)
    assert (tmp_path / name).read_text() == '{"mine": 1}'


def test_a_network_that_no_memory_holds_is_not_built():
    with pytest.raises(SbmtError, match="a network of less than 68,719,476,736 bytes"):
        fit(TINY.override(n_layers=2**31 - 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.Tensor.half, r"type torch\.float32 .* got torch\.float16"),
        (lambda x: x * torch.nan, "finite weights"),
    ],
)
def test_weights_of_another_type_and_no_numbers_are_told(tmp_path, change, words):
    run = fit(TINY, tmp_path)
    write_tensors(tmp_path / "model.safetensors", {name: change(x) for name, x in run.model.state_dict().items()})
    with pytest.raises(SbmtError, match=words):
        load_run(tmp_path)


def test_pickles_and_other_files_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(STATE | {"more": Bomb()}, "torch")
    Path("pickle").write_bytes(pickle.dumps(Bomb()))
    torch.save({"weights": torch.ones(1)}, "of others")
    for name in ("torch", "pickle", "of others", "nothing"):
        with pytest.raises(SbmtError, match=name) as told:
            IO.load_checkpoint(name)
        assert "\n" not in str(told.value)
    assert not Path("exploded").exists()


def test_damage_is_told_or_changes_nothing(tmp_path):
    """A zip archive has bytes that mean nothing."""
    path = tmp_path / "state.ckpt"
    IO.save_checkpoint(STATE, path)
    content = path.read_bytes()
    n_told = 0
    for changed in (cuts(content) | flips(content, 60) | {"nothing": content}).values():
        path.write_bytes(changed)
        try:
            found = IO.load_checkpoint(path)
            assert found["global_step"] == 3 and torch.equal(found["state_dict"]["a"], STATE["state_dict"]["a"])
        except SbmtError:
            n_told += 1
    assert n_told > 40 and changed == content
