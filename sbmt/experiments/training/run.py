"""Finished runs and their files: the configuration, the metrics, the weights, and the result with its manifest."""

import csv
import hashlib
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.errors import SbmtError, choose
from sbmt.experiments import files
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.manifest import manifest
from sbmt.experiments.training.config import CONFIGS, TrainingConfig, build_model

POINTS = 50  # maximum number of points per curve in a summary
STATE, BEST = "state.ckpt", "best.safetensors"
"""Files of an unfinished run: its checkpoint, and the weights that have scored best on dev."""
SHIPPED = Path(__file__).parent / "shipped" / "repeated_tokens"
"""Folder of a trained run that is part of the package: SBM as published, on repeated tokens."""
SHIPPED_FITTED = SHIPPED.parent / "fitted"
"""Folder of a second such run: fitted masks on fresh values."""
TOKENIZER = "tokenizer.json"
_RESULT = "config", "test", "n_parameters", "seconds", "manifest", "metrics_sha256"  # entries of result.json


@dataclass(frozen=True)
class Step:
    """One optimiser step: its number (from 1) and the training batch's loss, accuracy, density and auxiliary loss."""

    number: int
    loss: float
    accuracy: float
    density: float
    auxiliary_loss: float | None = None  # None if no block model learns by likelihood


OnStep = Callable[[Step], None]


@dataclass(frozen=True)
class Scores:
    """Scores averaged over labels (one per example or per selected token), and densities averaged over examples."""

    loss: float  # cross entropy in nats
    accuracy: float  # share of correct predictions
    density: float  # share of pairs in the masks, averaged over heads and layers
    expected_density: float  # mean edge probability
    densities: list[list[float]]  # per layer and head
    metrics: dict[str, float] = field(default_factory=dict)  # F1 scores on GLUE, perplexity of language models


@dataclass(frozen=True, eq=False)
class Run:
    """A finished training run."""

    config: TrainingConfig
    model: Any  # with the weights that scored best on dev, or the last ones if there is no dev split
    rows: list[dict[str, Any]]  # the table of metrics: means over stretches of training, and evaluations on dev
    test: Scores
    about: dict[str, Any]  # other entries of the result: data, best step, baselines
    seconds: float  # wall-clock time of training, for orientation only
    tokenizer: Tokenizer | None = None  # only for tasks on tokenised text

    @property
    def history(self) -> dict[str, list[float]]:
        """``step``, ``loss``, ``accuracy`` and ``density`` in every training row."""
        mine = [row for row in self.rows if row["split"] == "train"]
        return {name: [float(row[name]) for row in mine] for name in ("step", "loss", "accuracy", "density")}

    def curve(self) -> dict[str, list[float]]:
        """Returns means over at most :data:`POINTS` equal stretches of training, and the last step of each."""
        history = self.history
        steps, n_rows = history.pop("step"), len(self.history["step"])
        ends = sorted({round(n_rows * (i + 1) / POINTS) for i in range(POINTS)} - {0})
        parts = {name: np.split(np.array(values), ends[:-1]) for name, values in history.items()}
        means = {name: [round(float(part.mean()), 4) for part in found] for name, found in parts.items()}
        return {"step": [steps[end - 1] for end in ends]} | means

    def result(self) -> dict[str, Any]:
        """Returns the content of ``result.json``: the configuration, scores, facts about the run, and manifest."""
        return {
            "config": self.config.to_dict(),
            "test": asdict(self.test),
            **self.about,
            "n_parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "manifest": manifest(),
        }

    def save(self, folder: Path) -> None:
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors``, any tokeniser, and ``result.json``.

        The result is written last; a run without it counts as unfinished.
        """
        write_json(folder / "config.json", self.config.to_dict())
        table = metrics_csv(self.rows)
        files.write_bytes(folder / "metrics.csv", table)
        files.write_tensors(folder / "model.safetensors", self.model.state_dict())
        if self.tokenizer is not None:
            self.tokenizer.save(folder / TOKENIZER)
        sha256 = hashlib.sha256(table).hexdigest()
        write_json(folder / "result.json", self.result() | {"metrics_sha256": sha256}, has_checksum=True)


def load_run(folder: Path | str) -> Run:
    """Reads a saved run. A file that is missing, is damaged, or does not match the others raises SbmtError."""
    folder = Path(folder)
    config = read_config(folder)
    if not (folder / "result.json").exists():
        raise SbmtError(f"a finished run in {folder}", "one that was interrupted", "continue it with --resume")
    about, table = read_json(folder / "result.json", has_checksum=True), files.read_file(folder / "metrics.csv")
    is_whole = hashlib.sha256(table).hexdigest() == about["metrics_sha256"]
    if not is_whole or type(config).from_dict(about["config"]) != config:
        raise SbmtError(f"unchanged files of a run in {folder}", "a changed config.json or metrics.csv", "restore it")
    test, seconds, data = Scores(**about["test"]), float(about["seconds"]), about.get("data", {})
    about = {name: value for name, value in about.items() if name not in _RESULT}
    kinds = {"split": str, "step": int}
    cells = csv.DictReader(io.StringIO(table.decode(), newline=""))
    rows = [{name: kinds.get(name, float)(x) for name, x in row.items() if x} for row in cells]
    model = build_model(config, data)
    files.load_weights(model, files.read_tensors(folder / "model.safetensors"), folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER) if "tokenizer" in data else None
    if tokenizer and tokenizer.sha256 != data["tokenizer"]:
        raise SbmtError(f"the original tokeniser of the run in {folder}", "another one", f"restore {TOKENIZER}")
    return Run(config, model, rows, test, about, seconds, tokenizer)


def read_config(folder: Path | str) -> TrainingConfig:
    """Reads the configuration in a run's folder; raises SbmtError if it is missing or damaged."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "name an existing run, or train one with sbmt train")
    values = read_json(folder / "config.json")
    task = values.get("task") if isinstance(values, dict) else None
    return choose("task", str(task), CONFIGS).from_dict(values)


def best_row(config: TrainingConfig, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the row of the best evaluation on dev, or the earliest row if several are equally good."""
    dev = [row for row in rows if row["split"] == "dev"]
    return min(dev, key=lambda row: row["loss"] if config.best_by == "loss" else -row["accuracy"])


def metrics_csv(rows: list[dict[str, Any]]) -> bytes:
    """Formats rows as CSV, with a column for every key. Floats have six significant digits."""
    table, columns = io.StringIO(), dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(table, list(columns), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{x:.6g}" if isinstance(x, float) else x for name, x in row.items()})
    return table.getvalue().encode()
