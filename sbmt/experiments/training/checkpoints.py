"""Checkpoints that hold tensors and JSON: nothing in them is ever unpickled."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor

from sbmt.errors import SbmtError
from sbmt.experiments.files import read_tensors_and_texts, write_tensors
from sbmt.experiments.training.callbacks import MetricsTable

_STATE = "state"  # the header's entry that holds all that is no tensor


class TensorsAndJson(CheckpointIO):
    """Writes Lightning's checkpoints in the safetensors format, whole or not at all."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes one file: every tensor under a number, the rest as JSON in the header.

        Raises:
            SbmtError: If the checkpoint holds something else, or the file cannot be written.
        """
        tensors: dict[str, Tensor] = {}
        state = json.dumps(_pack(checkpoint, tensors))
        write_tensors(Path(path), tensors, **{_STATE: state})

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Reads what :meth:`save_checkpoint` wrote; tensors arrive on the CPU.

        Raises:
            SbmtError: If the file is missing or damaged.
        """
        if not Path(path).is_file():
            raise SbmtError(f"a checkpoint {path}", "none", "name the folder of a run that was interrupted")
        try:
            tensors, texts = read_tensors_and_texts(Path(path))
            checkpoint: dict[str, Any] = _unpack(json.loads(texts[_STATE]), tensors)
            return checkpoint
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            got = error.args[1] if isinstance(error, SbmtError) else f"damage ({error!r})"
            raise SbmtError(f"a whole checkpoint {path}", got, "remove it and train again") from error

    def remove_checkpoint(self, path: Any) -> None:
        """Removes a checkpoint."""
        Path(path).unlink(missing_ok=True)


def _pack(value: Any, tensors: dict[str, Tensor]) -> Any:
    """JSON for a value, with what JSON cannot say wrapped in one-entry objects; tensors go into ``tensors``."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        return {"pairs": [[_pack(k, tensors), _pack(v, tensors)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_pack(x, tensors) for x in value]}
    if isinstance(value, list):
        return [_pack(x, tensors) for x in value]
    if isinstance(value, os.PathLike):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise SbmtError("numbers, names and tensors in a checkpoint", type(value).__name__, "keep it out of the state")


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(x, tensors) for x in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_unpack(x, tensors) for x in content)
    return {_unpack(k, tensors): _unpack(v, tensors) for k, v in content}


def checkpoint_of(path: Path, run: dict[str, Any]) -> dict[str, Any]:
    """Reads the checkpoint of a run.

    Raises:
        SbmtError: If the file is missing, damaged, or of a run with other settings or other examples.
    """
    checkpoint = TensorsAndJson().load_checkpoint(path)
    if changed := [name for name, value in run.items() if checkpoint.get(name) != value]:
        got = f"one with another {', '.join(changed)}"
        raise SbmtError(f"a checkpoint of this run in {path}", got, "remove it and train again")
    return checkpoint


def weights(path: Path, run: dict[str, Any]) -> dict[str, Tensor]:
    """The model's weights in a checkpoint of a run; fails as :func:`checkpoint_of` does."""
    state = checkpoint_of(path, run)["state_dict"]
    return {name.removeprefix("model."): t for name, t in state.items() if torch.is_tensor(t)}


@contextmanager
def restoring(path: Path, table: MetricsTable) -> Iterator[None]:
    """Reports a checkpoint that cannot be restored; errors after the first step of training are left alone.

    A checksum tells damage. This tells what an older version, or anything else that wrote the file, did otherwise.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if table.is_training or isinstance(error, SbmtError):
            raise
        reason = str(error).strip().splitlines() or [""]
        got = f"{type(error).__name__}: {reason[0]}"
        raise SbmtError(f"a whole checkpoint {path}", got, "remove it and train again") from error
