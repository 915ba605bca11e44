"""What accompanies training: the table of metrics, checkpoints, and reports of progress."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from sbmt.experiments.files import write_bytes
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import METRICS, Scores, Step, metrics_csv


def require(is_met: bool, what: str) -> None:
    """Raises ValueError, which names a part of a checkpoint, unless a condition is met."""
    if not is_met:
        raise ValueError(f"{what} cannot have been written by this run")


def is_like(found: Any, template: Any) -> bool:
    """Whether two nested values have the same keys, lengths and types, and their tensors the same shapes."""
    if isinstance(template, Tensor):
        is_tensor = isinstance(found, Tensor)
        return is_tensor and found.shape == template.shape and found.dtype == template.dtype
    if type(found) is not type(template) and not (isinstance(found, dict) and isinstance(template, dict)):
        return False
    if isinstance(template, dict):
        return found.keys() == template.keys() and all(is_like(found[name], x) for name, x in template.items())
    if isinstance(template, list | tuple):
        return len(found) == len(template) and all(map(is_like, found, template))
    return True


class MetricsTable(Callback):
    """Means over equal stretches of training and every evaluation on dev, kept with the checkpoints.

    Args:
        folder: Where ``metrics.csv`` goes.
        every: Steps of a stretch.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self.path, self.every = folder / "metrics.csv", every
        self.rows: list[dict[str, Any]] = []
        self._sums: dict[str, Tensor] = {}
        self._count, self._last = 0, 0
        self._step: int | None = None  # of the checkpoint that the run goes on from
        self.is_training = False

    def check(self, state: dict[str, Any], step: int, config: TrainingConfig) -> None:
        """Raises ValueError unless a state is one that this table can have at a step."""
        expected = []
        for number in range(1, step + 1):
            expected += [(number, "train")] if number % self.every == 0 else []
            expected += [(number, "dev")] if config.has_dev and number % config.checkpoint_every == 0 else []
        rows, last = state["rows"], step - step % self.every
        require([(row["step"], row["split"]) for row in rows] == expected, "the steps of its metrics")
        numbers = [{name: x for name, x in row.items() if name not in ("step", "split")} for row in rows]
        are_numbers = all(x is None or isinstance(x, float) for row in numbers for x in row.values())
        require(are_numbers and all(isinstance(row[x], float) for row in numbers for x in METRICS), "its metrics")
        template = {name: torch.zeros(()) for name in ("loss", "accuracy")}
        template |= {"densities": torch.zeros(config.n_layers * config.n_heads)}
        n_batches = (step - last) * config.accumulate
        if "auxiliary_loss" in state["sums"]:
            template |= {"auxiliary_loss": torch.zeros(())}
        require(is_like(state["sums"], template if n_batches else {}), "the sums of its metrics")
        require((state["count"], state["last"]) == (n_batches, last), "the counts of its metrics")
        self._step = step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Adds a batch to the current stretch."""
        for name, value in module.latest.items():
            self._sums[name] = self._sums[name].to(value.device) + value if name in self._sums else value.clone()
        self._count += 1
        step = trainer.global_step
        if step == self._last or step % self.every:
            return
        shape = module.config.n_layers, module.config.n_heads
        means = {name: trainer.strategy.reduce(x / self._count, reduce_op="mean") for name, x in self._sums.items()}
        densities = means.pop("densities").double().cpu()
        loss, accuracy = (float(means[name]) for name in ("loss", "accuracy"))
        layers = densities.view(shape).tolist()
        metrics = module.config.metrics_of(loss)
        metrics |= {name: float(means[name]) for name in ("auxiliary_loss",) if name in means}
        scores = Scores(loss, accuracy, float(densities.mean()), float("nan"), layers, metrics)
        self.rows.append({"step": step, "split": "train"} | scores.row())
        self._sums, self._count, self._last = {}, 0, step

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Adds a row for dev, and writes the table."""
        self.rows.append({"step": trainer.global_step, "split": "dev"} | module.scores.row())
        if trainer.is_global_zero:
            write_bytes(self.path, metrics_csv(self.rows))

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Everything has been restored; see :func:`~sbmt.experiments.training.checkpoints.restoring`.

        Raises:
            ValueError: If the counters of a checkpoint belong to another step.
        """
        require(self._step in (None, trainer.global_step), "its counters")
        self.is_training = True

    def state_dict(self) -> dict[str, Any]:
        """The rows and the current stretch, for a checkpoint."""
        rows = [{k: None if v != v else v for k, v in row.items()} for row in self.rows]
        return {"rows": rows, "sums": dict(self._sums), "count": self._count, "last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.rows = [{k: float("nan") if v is None else v for k, v in row.items()} for row in state["rows"]]
        self._sums, self._count, self._last = dict(state["sums"]), state["count"], state["last"]


class EveryStep(Callback):
    """Reports optimiser steps.

    Args:
        on_step: Called with each.
    """

    def __init__(self, on_step: Callable[[Step], None]) -> None:
        self.on_step, self._last = on_step, 0

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Starts after the steps that a checkpoint holds, which have been reported before."""
        self._last = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Reports the step that this batch completed, if it did."""
        step = trainer.global_step
        if step > self._last and trainer.is_global_zero:
            latest = module.latest
            density = float(latest["densities"].mean())
            fit = float(latest["auxiliary_loss"]) if "auxiliary_loss" in latest else None
            self.on_step(Step(step, float(latest["loss"]), float(latest["accuracy"]), density, fit))
        self._last = step


class _Checkpoint(ModelCheckpoint):
    FILE_EXTENSION = ".safetensors"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the best score, with paths in the current folder: a run may have been moved."""
        scores = [state["best_model_score"], *state["best_k_models"].values()]
        require(all(x is None or is_like(x, torch.zeros(())) for x in scores), "its best scores")
        here = Path(self.dirpath or "")
        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        moved = {name: str(here / Path(state[name]).name) if state[name] else "" for name in paths}
        best = {str(here / Path(path).name): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state | moved | {"best_k_models": best, "dirpath": self.dirpath})


class _State(_Checkpoint):
    """The last state, at the end of every evaluation."""


def checkpoints(folder: Path, config: TrainingConfig) -> list[ModelCheckpoint]:
    """The callbacks that write checkpoints.

    Where dev examples choose the weights, the best ones and the last state are kept at every evaluation; among equals,
    the first ones are best. Otherwise the last state is kept every so many steps.

    Args:
        folder: Where they go.
        config: Of the run.
    """
    shared: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": False}
    if not config.has_dev:
        return [_State(filename="state", every_n_train_steps=config.checkpoint_every, **shared)]
    mode = "max" if config.best_by == "accuracy" else "min"
    best = _Checkpoint(filename="best", monitor=f"dev_{config.best_by}", mode=mode, save_weights_only=True, **shared)
    return [best, _State(filename="state", **shared)]
