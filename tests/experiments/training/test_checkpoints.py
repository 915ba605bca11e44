"""Checkpoints are read as tensors, numbers and names, and whole; anything else is refused."""

import pickle
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training.lightning_module import WholeFiles
from tests.faults.damage import Bomb, cuts, flips

IO = WholeFiles()
STATE = {"origin": {"settings": {}}, "global_step": 3, "state_dict": {"a": torch.arange(300.0)}}


def test_what_was_written_comes_back(tmp_path):
    IO.save_checkpoint(STATE, tmp_path / "state.ckpt")
    found = IO.load_checkpoint(tmp_path / "state.ckpt")
    assert found["global_step"] == 3 and torch.equal(found["state_dict"]["a"], STATE["state_dict"]["a"])


@pytest.mark.bad_input
def test_pickles_and_other_files_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(STATE | {"more": Bomb()}, "torch")
    Path("pickle").write_bytes(pickle.dumps(Bomb()))
    torch.save({"weights": torch.ones(1)}, "of others")
    Path("folder").mkdir()
    for name in ("torch", "pickle", "of others", "folder", "nothing"):
        with pytest.raises(SbmtError, match=name) as told:
            IO.load_checkpoint(name)
        assert "\n" not in str(told.value)
    assert not Path("exploded").exists()


@pytest.mark.bad_input
def test_damage_is_told_or_changes_nothing(tmp_path):
    """A zip archive has bytes that mean nothing."""
    path = tmp_path / "state.ckpt"
    IO.save_checkpoint(STATE, path)
    content = path.read_bytes()
    n_told = 0
    for changed in (cuts(content) | flips(content, 60)).values():
        path.write_bytes(changed)
        try:
            found = IO.load_checkpoint(path)
        except SbmtError:
            n_told += 1
        else:
            assert found["global_step"] == 3 and torch.equal(found["state_dict"]["a"], STATE["state_dict"]["a"])
    assert n_told > 40
