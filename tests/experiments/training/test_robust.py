"""Unexpected folders, files and variables cause a one-line error, and nothing is lost."""

import pickle
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.tokenizer import train_tokenizer
from sbmt.experiments.files import read_tensors, write_tensors
from sbmt.experiments.training import fit, load_run, run
from sbmt.experiments.training.lightning_module import WholeFiles
from tests.experiments.studies.tiny import TINY
from tests.experiments.training.runs import Stopped, stop_after
from tests.experiments.training.tiny_language import VOCABULARY, sentences
from tests.faults.damage import Bomb

pytestmark = pytest.mark.bad_input
IO = WholeFiles()
STATE = {"origin": {"examples": None}, "global_step": 3, "state_dict": {"a": torch.arange(300.0)}}


def test_a_run_is_finished_with_its_result(tmp_path, monkeypatch):
    """If the disk is full after the weights but before the result, the run starts again, also with ``resume``."""

    def fail():
        raise SbmtError("to write", "a full disk", "free some")

    with monkeypatch.context() as patch, pytest.raises(SbmtError, match="a full disk"):
        patch.setattr(run, "manifest", fail)  # the result is written in part
        fit(TINY, tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(SbmtError, match="one that was interrupted"):
        load_run(tmp_path / "run")
    again = fit(TINY, tmp_path / "run", resume=True)
    assert again.test == load_run(tmp_path / "run").test == fit(TINY).test


@pytest.mark.parametrize("what", ["pretrained", "tokenizer"])
def test_fine_tuning_does_not_go_on_from_another_start(tmp_path, tiny_glue, tiny_mlm, caches, what):
    if what == "pretrained":
        fit(tiny_mlm(), tmp_path / "mlm")
        config, other = tiny_glue(pretrained=str(tmp_path / "mlm")), tmp_path / "mlm" / "model.safetensors"
    else:
        other = tmp_path / "tokenizer.json"
        other.write_bytes((caches / "corpus" / "tokenizer.json").read_bytes())
        config = tiny_glue(tokenizer=str(other))
    with pytest.raises(Stopped):
        fit(config, tmp_path / "run", on_step=stop_after(3))
    if what == "pretrained":
        write_tensors(other, {name: x + 0.1 for name, x in read_tensors(other).items()})
    else:
        train_tokenizer(sentences(40, seed=1), VOCABULARY).save(other)
    with pytest.raises(SbmtError, match=f"a checkpoint of this run, got one with different .*{what}"):
        fit(config, tmp_path / "run", resume=True, on_step=pytest.fail)


@pytest.mark.parametrize("name", ["config.json", "sub/notes.txt"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(SbmtError, match="other files"):
        fit(TINY, tmp_path)
    assert (tmp_path / name).read_text() == '{"mine": 1}'


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


def test_pickles_damage_and_other_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(STATE | {"more": Bomb()}, "torch")
    Path("pickle").write_bytes(pickle.dumps(Bomb()))
    torch.save({"weights": torch.ones(1)}, "of others")
    IO.save_checkpoint(STATE, "whole")
    weights = STATE["state_dict"]["a"].numpy().tobytes()
    Path("damaged").write_bytes(Path("whole").read_bytes().replace(weights, weights[::-1]))
    for name in ("torch", "pickle", "of others", "nothing", "damaged"):
        with pytest.raises(SbmtError, match=name) as told:
            IO.load_checkpoint(name)
        assert "\n" not in str(told.value)
    assert torch.equal(IO.load_checkpoint("whole")["state_dict"]["a"], STATE["state_dict"]["a"])
    assert not Path("exploded").exists()
