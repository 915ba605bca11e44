"""Checkpoints that hold tensors and JSON: nothing in them is ever unpickled."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import CheckpointIO
from torch import Tensor, nn

from sbmt.errors import SbmtError
from sbmt.experiments.files import read_tensors_and_texts, write_tensors
from sbmt.experiments.training.callbacks import MetricsTable, is_like, require
from sbmt.experiments.training.lightning_module import TrainingModule

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
            raise SbmtError(f"a checkpoint {path}", "none", "restore it, or remove its folder and train again")
        try:
            tensors, texts = read_tensors_and_texts(Path(path))
            checkpoint: dict[str, Any] = _unpack(json.loads(texts[_STATE]), tensors)
            return checkpoint
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            got = error.args[1] if isinstance(error, SbmtError) else f"damage ({error!r})"
            raise SbmtError(f"a whole checkpoint {path}", got, "remove its folder and train again") from error

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


def checkpoint_of(path: Path, module: TrainingModule, table: MetricsTable) -> dict[str, Any]:
    """Reads the checkpoint of a run, and checks everything that Lightning and torch would take on trust.

    Args:
        path: Where it is.
        module: What is to be trained.
        table: What the table of metrics is to be restored to.

    Raises:
        SbmtError: If the file is missing or damaged, of a run with other settings or other examples, or holds
            something that a run of these settings does not write.
    """
    checkpoint = TensorsAndJson().load_checkpoint(path)
    _check_origin(checkpoint, path, module.run)
    try:
        _check_state(checkpoint, module)
        table.check(checkpoint["callbacks"][table.state_key], checkpoint["global_step"], module.config)
    except _WRONG_CONTENT as error:
        raise _damaged(path, error) from error
    return checkpoint


def weights(path: Path, run: dict[str, Any]) -> dict[str, Tensor]:
    """The model's weights in a checkpoint of a run.

    Raises:
        SbmtError: If the file is missing, damaged, or of a run with other settings or other examples.
    """
    checkpoint = TensorsAndJson().load_checkpoint(path)
    _check_origin(checkpoint, path, run)
    return {name.removeprefix("model."): t for name, t in checkpoint["state_dict"].items() if torch.is_tensor(t)}


@contextmanager
def restoring(path: Path, table: MetricsTable) -> Iterator[None]:
    """Reports a checkpoint that cannot be restored; errors after the first step of training are left alone."""
    try:
        yield
    except _WRONG_CONTENT as error:
        if table.is_training or isinstance(error, SbmtError):
            raise
        raise _damaged(path, error) from error


_WRONG_CONTENT = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)


def _damaged(path: Path, error: Exception) -> SbmtError:
    reason = str(error).strip().splitlines() or [""]
    return SbmtError(
        f"a whole checkpoint {path}", f"{type(error).__name__}: {reason[0]}", "remove its folder and train again"
    )


def _check_origin(checkpoint: dict[str, Any], path: Path, run: dict[str, Any]) -> None:
    if changed := [name for name, value in run.items() if checkpoint.get(name) != value]:
        got = f"one with another {', '.join(changed)}"
        raise SbmtError(f"a checkpoint of this run in {path}", got, "remove its folder and train again")


def _check_state(checkpoint: dict[str, Any], module: TrainingModule) -> None:
    """Raises ValueError unless weights, optimiser, schedule, masks and counters are those of a run at some step."""
    config, step = module.config, checkpoint["global_step"]
    require(type(step) is int and 0 < step <= config.steps, "its step")
    require(is_like(checkpoint["state_dict"], module.state_dict()), "its weights")

    # A step with gradients of zero shows what the optimiser keeps.
    groups = [
        group | {"params": [nn.Parameter(torch.zeros_like(p)) for p in group["params"]]}
        for group in config.parameter_groups(module.model)
    ]
    copies = [copy for group in groups for copy in group["params"]]
    optimizer = config.make_optimizer(groups)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: config.learning_rate_share(step))
    for copy in copies:
        copy.grad = torch.zeros_like(copy)
    optimizer.step()
    (found,), (found_schedule,) = checkpoint["optimizer_states"], checkpoint["lr_schedulers"]
    require(is_like(found, optimizer.state_dict()), "the state of its optimiser")
    counts = [float(moments["step"]) for moments in found["state"].values()]
    require(all(1 <= count <= step for count in counts), "the step of its optimiser")
    starts = [group.get("lr", config.learning_rate) for group in config.parameter_groups(module.model)]
    rates = [start * config.learning_rate_share(step) for start in starts]
    settings = zip(optimizer.state_dict()["param_groups"], rates, strict=True)
    require(
        found["param_groups"] == [group | {"lr": rate} for group, rate in settings], "the settings of its optimiser"
    )
    require(is_like(found_schedule, schedule.state_dict()), "its schedule")
    now = {"last_epoch": step, "base_lrs": starts, "_last_lr": rates}
    require(all(found_schedule[name] == value for name, value in now.items()), "its schedule")

    masks, state = checkpoint.get("masks"), module.masks.state()
    require(is_like(masks, state), "the state of its masks")
    if masks is not None and state is not None:
        generator = torch.Generator()
        seed = generator.set_state(state).initial_seed()
        require(generator.set_state(masks).initial_seed() == seed, "the seed of its masks")
    require(_are_counts(checkpoint["loops"]), "its counters")


def _are_counts(value: Any) -> bool:
    """Whether a nested dictionary holds nothing but counts and flags."""
    if isinstance(value, dict):
        return all(_are_counts(x) for x in value.values())
    return isinstance(value, bool) or (isinstance(value, int) and value >= 0)
