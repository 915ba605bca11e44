"""Checkpoints are read as tensors, numbers and names, and whole; anything else is refused."""

import pickle
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training.lightning_module import WholeFiles
from tests.faults.damage import Bomb, cuts, flips

pytestmark = pytest.mark.bad_input
IO = WholeFiles()
STATE = {"origin": {"examples": None}, "global_step": 3, "state_dict": {"a": torch.arange(300.0)}}


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
