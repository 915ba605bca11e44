import json
import os
import pickle
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training.checkpoints import TensorsAndJson, weights

IO = TensorsAndJson()
SHARED = torch.arange(12.0).view(3, 4)
STATE = {
    "step": 7,
    "rate": 0.1,
    "worst": float("-inf"),
    "is_done": False,
    "nothing": None,
    "name": "ä\n\"'",
    3: {"int key": (1, (2.5, [None, True])), "empty": {}, "none": [], "no tuple": ()},
    "tensor": "a name that means something inside",
    "pairs": [1, 2],
    "tensors": {
        "bf16": torch.randn(2, 3).bfloat16(),
        "half": torch.randn(2).half(),
        "bool": torch.tensor([True, False]),
        "scalar": torch.tensor(1.25, dtype=torch.float64),
        "int": torch.tensor(-3),
        "byte": torch.arange(5, dtype=torch.uint8),
        "empty": torch.empty(0, 2),
        "whole": SHARED,
        "row": SHARED[1],
        "transposed": SHARED.T,
        "again": SHARED,
    },
    "parameter": [torch.nn.Parameter(torch.ones(2))],
    "generator": torch.Generator().manual_seed(1).get_state(),
}


def is_same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(is_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and a == b


def test_nested_states_come_back(tmp_path):
    IO.save_checkpoint(STATE, tmp_path / "s.safetensors")
    back = IO.load_checkpoint(tmp_path / "s.safetensors")
    assert is_same(back, STATE)
    back["tensors"]["whole"].zero_()
    assert SHARED.any() and back["tensors"]["row"].any()  # views come back as tensors of their own


def test_paths_and_ordered_dicts_come_back_plain(tmp_path):
    IO.save_checkpoint({"path": Path("/a/b"), "order": OrderedDict(b=1, a=2)}, tmp_path / "s")
    assert IO.load_checkpoint(tmp_path / "s") == {"path": "/a/b", "order": {"b": 1, "a": 2}}


def test_the_file_is_a_header_and_numbers_and_nothing_else(tmp_path):
    """Every byte is accounted for, so no pickle hides in it."""
    path = tmp_path / "s.safetensors"
    IO.save_checkpoint(STATE, path)
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    assert set(header.pop("__metadata__")) == {"sha256", "state"}
    spans = sorted(about["data_offsets"] for about in header.values())
    assert spans[0][0] == 0 and all(a[1] == b[0] for a, b in pairwise(spans))
    assert spans[-1][1] == len(content) - 8 - size
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(content)


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


@pytest.mark.bad_input
def test_pickles_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Bomb()}, "torch")
    Path("pickle").write_bytes(pickle.dumps(Bomb()))
    for name in ("torch", "pickle"):
        with pytest.raises(SbmtError, match="a whole checkpoint"):
            IO.load_checkpoint(name)
    assert not Path("exploded").exists()


@pytest.mark.bad_input
def test_tensors_without_a_state_are_refused(tmp_path):
    from sbmt.experiments.files import write_tensors

    write_tensors(tmp_path / "model.safetensors", {"a": torch.ones(1)})
    with pytest.raises(SbmtError, match="a whole checkpoint"):
        IO.load_checkpoint(tmp_path / "model.safetensors")
    with pytest.raises(SbmtError, match="a checkpoint"):
        IO.load_checkpoint(tmp_path / "nothing.safetensors")


@pytest.mark.bad_input
@pytest.mark.parametrize("value", [Bomb(), {1, 2}, b"bytes", lambda: None, torch.float32, 1j])
def test_what_is_neither_number_nor_name_is_refused(tmp_path, value):
    path = tmp_path / "s"
    IO.save_checkpoint({"old": 1}, path)
    with pytest.raises(SbmtError, match="numbers, names and tensors"):
        IO.save_checkpoint({"new": [value]}, path)
    assert IO.load_checkpoint(path) == {"old": 1} and os.listdir(tmp_path) == ["s"]


def test_weights_are_the_models_own(tmp_path):
    linear = torch.nn.Linear(2, 3)
    state = {f"model.{name}": t for name, t in linear.state_dict().items()}
    run = {"config": {"seed": 1}, "examples": "abc"}
    IO.save_checkpoint({"state_dict": state, "global_step": 3, **run}, tmp_path / "s")
    assert is_same(weights(tmp_path / "s", run), dict(linear.state_dict()))
    with pytest.raises(SbmtError, match="one with another examples"):
        weights(tmp_path / "s", run | {"examples": "abd"})
