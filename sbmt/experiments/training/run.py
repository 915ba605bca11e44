"""A run on disk: configuration, metrics, weights, result with manifest."""

import csv
import hashlib
import io
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from sbmt.errors import SbmtError, choose
from sbmt.experiments import files
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import CHECKSUM, check_form, read_json, write_json
from sbmt.experiments.manifest import manifest
from sbmt.experiments.training.config import CONFIGS, TrainingConfig, build_model

POINTS = 50  # of a curve in a summary
STATE, BEST = "state.ckpt", "best.safetensors"
"""Files of a run that is not finished: its checkpoint, and the weights that have done best on dev."""
SHIPPED = Path(__file__).parent / "shipped" / "repeated_tokens"
"""The folder of a trained run that is part of the package: SBM as published, on repeated tokens."""
SHIPPED_FITTED = SHIPPED.parent / "fitted"
"""Likewise: fitted masks, on fresh values."""
TOKENIZER = "tokenizer.json"
_SCORES: dict[str, Any] = {name: float for name in ("loss", "accuracy", "density", "expected_density")}
_SCORES |= {"densities": list[list[float]], "metrics?": dict[str, float]}
_DATA = {"vocab_size": int, "first_id": int, "n_documents": int, "class_names": list[str], "tokenizer?": str}
_RESULT = {"config": dict, "test": _SCORES, "n_parameters": int, "seconds": float, "manifest": dict}
_RESULT |= {"metrics_sha256": str, CHECKSUM: str, "data?": _DATA, "n_test?": int, "chance?": float}
_RESULT |= {"interval?": tuple[float, float]}
"""The form of ``result.json``; see :func:`~sbmt.experiments.files.check_form`."""


@dataclass(frozen=True)
class Step:
    """One optimiser step: its number (from 1) and the training batch's loss, accuracy, density and auxiliary loss."""

    number: int
    loss: float
    accuracy: float
    density: float
    auxiliary_loss: float | None = None  # where no block model learns by likelihood


@dataclass(frozen=True)
class Scores:
    """Means over labels (an example has one, or one for each token that is judged), and densities over examples."""

    loss: float  # cross entropy in nats
    accuracy: float  # share of labels that are right
    density: float  # share of pairs attended: mean over heads and layers
    expected_density: float  # mean edge probability
    densities: list[list[float]]  # per layer and head
    metrics: dict[str, float] = field(default_factory=dict)  # F1 of several kinds on GLUE; ``perplexity``

    def row(self) -> dict[str, float]:
        """One flat row of a table: ``density_l0h1`` is that of head 1 of layer 0."""
        values = asdict(self)
        layers, metrics = values.pop("densities"), values.pop("metrics")
        heads = {f"density_l{a}h{b}": x for a, heads in enumerate(layers) for b, x in enumerate(heads)}
        return values | metrics | heads


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    config: TrainingConfig
    model: Any  # with the weights that did best on dev, or the last ones where there is no dev
    rows: list[dict[str, Any]]  # the table of metrics: means over stretches of training, and evaluations on dev
    test: Scores
    about: dict[str, Any]  # what else the result records: the data, the best step, baselines
    seconds: float  # wall-clock time of training, for orientation only
    tokenizer: Tokenizer | None = None  # of tasks on text in words

    @property
    def history(self) -> dict[str, list[float]]:
        """``step``, ``loss``, ``accuracy`` and ``density`` of training, row by row."""
        mine = [row for row in self.rows if row["split"] == "train"]
        return {name: [float(row[name]) for row in mine] for name in ("step", "loss", "accuracy", "density")}

    def curve(self) -> dict[str, list[float]]:
        """Means over equal stretches of training, at most :data:`POINTS` of them, and the step each ends with."""
        history = self.history
        steps, n_rows = history.pop("step"), len(self.history["step"])
        ends = sorted({round(n_rows * (i + 1) / POINTS) for i in range(POINTS)} - {0})
        parts = {name: np.split(np.array(values), ends[:-1]) for name, values in history.items()}
        means = {name: [round(float(part.mean()), 4) for part in found] for name, found in parts.items()}
        return {"step": [steps[end - 1] for end in ends]} | means

    def result(self) -> dict[str, Any]:
        """Numbers and manifest for ``result.json``."""
        return {
            "config": self.config.to_dict(),
            "test": asdict(self.test),
            **self.about,
            "n_parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "manifest": manifest(),
        }

    def save(self, folder: Path) -> None:
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors``, the tokeniser if any, and ``result.json``.

        The result is written last: without it, the run is not finished.
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
    """Reads what :meth:`Run.save` wrote; SbmtError if a file is missing, damaged, or does not fit the others."""
    folder, do = Path(folder), "restore the file that was changed, or train again"
    config = read_config(folder)
    if not (folder / "result.json").exists():
        again = "continue it with --resume" if (folder / STATE).exists() else "train again"
        raise SbmtError(f"a finished run in {folder}", "one that was interrupted", again)
    about, table = read_json(folder / "result.json"), files.read_file(folder / "metrics.csv")
    check_form(about, _RESULT, str(folder / "result.json"))
    data = about.get("data", {})
    if not config.is_generated and not data:
        raise SbmtError(f"the origin of the data in {folder / 'result.json'}", "none", do)
    if type(config).from_dict(about["config"]) != config:
        raise SbmtError(f"the same configuration in config.json and result.json of {folder}", "different ones", do)
    if hashlib.sha256(table).hexdigest() != about["metrics_sha256"]:
        raise SbmtError(f"the metrics of the run in {folder / 'metrics.csv'}", "a changed file", do)
    test = Scores(**{field.name: about["test"].get(field.name, {}) for field in fields(Scores)})
    seconds = float(about["seconds"])
    about = {name: value for name, value in about.items() if name not in _RESULT}  # optional entries, named "…?" there
    kinds = {"split": str, "step": int}
    cells = csv.DictReader(io.StringIO(table.decode(), newline=""))
    rows = [{name: kinds.get(name, float)(x or "nan") for name, x in row.items()} for row in cells]
    tensors = files.read_tensors(folder / "model.safetensors")
    if config.least_weights > (n := sum(x.numel() for x in tensors.values())):  # before the network is built
        raise SbmtError(f"at least {config.least_weights:,} weights in {folder}, as its settings say", f"{n:,}", do)
    model = build_model(config, data)
    files.load_weights(model, tensors, folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER) if "tokenizer" in data else None
    if tokenizer and tokenizer.sha256 != data["tokenizer"]:
        raise SbmtError(f"the tokeniser that the run in {folder} was trained with", tokenizer, "restore the file")
    return Run(config, model, rows, test, about, seconds, tokenizer)


def read_config(folder: Path | str) -> TrainingConfig:
    """The configuration in a run's folder; SbmtError if it is missing or damaged."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "train one, see sbmt train --help")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict) or "task" not in values:
        raise SbmtError(f"the name of a task in {folder / 'config.json'}", "none", "train again with this version")
    return choose("task", values["task"], CONFIGS).from_dict(values)


def best_row(config: TrainingConfig, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the best evaluation on dev, the first one among equals."""
    dev = [row for row in rows if row["split"] == "dev"]
    return min(dev, key=lambda row: row["loss"] if config.best_by == "loss" else -row["accuracy"])


def metrics_csv(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV, with a column for every key of any row; numbers have six digits, and NaN is left empty."""
    table, columns = io.StringIO(), list(dict.fromkeys(name for row in rows for name in row)) or ["step"]
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "" if v != v else f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return table.getvalue().encode()
