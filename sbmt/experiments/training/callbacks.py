"""What happens beside the steps of a run: a table of metrics, checkpoints, progress."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from sbmt.experiments.files import write_bytes
from sbmt.experiments.training.loop import Step
from sbmt.experiments.training.module import Scores

ROWS = 200  # of training in the table of metrics
BEST, STATE = "best", "state"  # names of the checkpoints


class MetricsTable(Callback):
    """Means over equal stretches of training and every evaluation on dev, kept with the checkpoints.

    Args:
        folder: Where ``metrics.csv`` goes.
        steps: Steps of the whole run.
    """

    def __init__(self, folder: Path, steps: int) -> None:
        self.path, self.every = folder / "metrics.csv", max(1, steps // ROWS)
        self.rows: list[dict[str, Any]] = []
        self._sums: dict[str, Tensor] = {}
        self._count, self._last = 0, 0

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
        scores = Scores(loss, accuracy, float(densities.mean()), float("nan"), layers, module.perplexity(loss))
        self.rows.append({"step": step, "split": "train"} | scores.row())
        self._sums, self._count, self._last = {}, 0, step

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Adds a row for dev, and writes the table."""
        self.rows.append({"step": trainer.global_step, "split": "dev"} | module.scores.row())
        if trainer.is_global_zero:
            write_bytes(self.path, metrics_csv(self.rows))

    def state_dict(self) -> dict[str, Any]:
        """The rows and the stretch under way, for a checkpoint."""
        rows = [{k: None if v != v else v for k, v in row.items()} for row in self.rows]
        return {"rows": rows, "sums": dict(self._sums), "count": self._count, "last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What :meth:`state_dict` kept."""
        self.rows = [{k: float("nan") if v is None else v for k, v in row.items()} for row in state["rows"]]
        self._sums, self._count, self._last = dict(state["sums"]), state["count"], state["last"]


def metrics_csv(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV, a column for every key that any of them has; six digits, and nothing for NaN."""
    table = io.StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["step"]
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {k: "" if v != v else f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
        writer.writerow(cells)
    return table.getvalue().encode()


class EveryStep(Callback):
    """Reports optimiser steps.

    Args:
        on_step: Called with each.
    """

    def __init__(self, on_step: Callable[[Step], None]) -> None:
        self.on_step, self._last = on_step, 0

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Steps before a checkpoint have been reported."""
        self._last = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Reports the step that this batch completed, if it did."""
        step = trainer.global_step
        if step > self._last and trainer.is_global_zero:
            latest = module.latest
            loss, accuracy, density = (
                float(latest["loss"]),
                float(latest["accuracy"]),
                float(latest["densities"].mean()),
            )
            self.on_step(Step(step, loss, accuracy, density))
        self._last = step


class _Checkpoint(ModelCheckpoint):
    FILE_EXTENSION = ".safetensors"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What was best so far, wherever the folder was then: a run may be moved before it goes on."""
        here = Path(self.dirpath or "")
        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        moved = {name: str(here / Path(state[name]).name) if state[name] else "" for name in paths}
        best = {str(here / Path(path).name): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state | moved | {"best_k_models": best, "dirpath": self.dirpath})


class _State(_Checkpoint):
    """The last state, at the end of every evaluation."""


def checkpoints(folder: Path, best_by: str) -> list[ModelCheckpoint]:
    """The best weights on dev, the first of equals; and the whole state, both after every evaluation.

    Args:
        folder: Where they go.
        best_by: ``accuracy`` or ``loss``.
    """
    shared: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": False}
    mode = "max" if best_by == "accuracy" else "min"
    best = _Checkpoint(filename=BEST, monitor=f"dev_{best_by}", mode=mode, save_weights_only=True, **shared)
    return [best, _State(filename=STATE, **shared)]
