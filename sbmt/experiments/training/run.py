"""A run on disk: configuration, metrics, weights, result with manifest."""

import csv
import hashlib
import io
import os
import platform
import re
import shlex
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import inf, isfinite
from pathlib import Path
from typing import Any

import torch

import sbmt
from sbmt.errors import SbmtError, choose
from sbmt.experiments.data.tokenizer import Tokenizer
from sbmt.experiments.files import (
    CHECKSUM,
    load_weights,
    read_json,
    read_tensors,
    write_bytes,
    write_json,
    write_tensors,
)
from sbmt.experiments.training.config import TrainingConfig, build_model, is_finite
from sbmt.experiments.training.data import TaskData
from sbmt.experiments.training.tasks import CONFIGS, TOKENIZER, tokenizer_of

METRICS = ("loss", "accuracy", "density")
POINTS = 50  # of a curve in a summary
STATE, BEST = "state.ckpt", "best.safetensors"
"""Files of a run that is not finished: its checkpoint, and the weights that have done best on dev."""
SHIPPED = Path(__file__).parent / "shipped" / "repeated_tokens"
"""The folder of a trained run that comes with the library: SBM as published, on repeated tokens."""
SHIPPED_FITTED = SHIPPED.parent / "fitted"
"""Likewise: fitted masks, on fresh values."""


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
    """Means over labels, and densities, which are means over examples.

    A task has a label per example; repeated tokens have one per token, a masked language model one per selected token.

    Attributes:
        loss: Cross entropy in nats.
        accuracy: Share of labels that are right, in [0, 1].
        density: Share of pairs attended, in [0, 1]: mean over heads and layers.
        expected_density: Mean edge probability, in [0, 1].
        densities: Density per layer and head.
        metrics: Further numbers by name: F1 of several kinds on GLUE, ``perplexity`` of a masked language model.
    """

    loss: float
    accuracy: float
    density: float
    expected_density: float
    densities: list[list[float]]
    metrics: dict[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, float]:
        """One flat row of a table: ``density_l0h1`` is that of head 1 of layer 0."""
        values = asdict(self)
        layers, metrics = values.pop("densities"), values.pop("metrics")
        heads = {f"density_l{a}h{b}": x for a, heads in enumerate(layers) for b, x in enumerate(heads)}
        return values | metrics | heads


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Attributes:
        config: What was asked for.
        model: The trained model: the weights that did best on dev, or the last ones where there is no dev.
        rows: The table of metrics: means over stretches of training, and every evaluation on dev.
        test: Scores on the test examples.
        about: What else the result says; see :func:`describe`.
        seconds: Wall-clock time of training, for orientation only.
        tokenizer: Of tasks on text in words.
    """

    config: TrainingConfig
    model: Any
    rows: list[dict[str, Any]]
    test: Scores
    about: dict[str, Any]
    seconds: float
    tokenizer: Tokenizer | None = None

    @property
    def history(self) -> dict[str, list[float]]:
        """``step``, ``loss``, ``accuracy`` and ``density`` of training, row by row."""
        mine = [row for row in self.rows if row["split"] == "train"]
        return {name: [float(row[name]) for row in mine] for name in ("step", *METRICS)}

    def curve(self) -> dict[str, list[float]]:
        """Means over equal stretches of training, at most :data:`POINTS` of them, and the step each ends with."""
        history = self.history
        n_rows = len(history["step"])
        ends = sorted({round(n_rows * (i + 1) / POINTS) for i in range(POINTS)} - {0})
        starts = [0, *ends[:-1]]
        curve: dict[str, list[float]] = {"step": [history["step"][end - 1] for end in ends]}
        for name in METRICS:
            values = torch.tensor(history[name], dtype=torch.float64)
            curve[name] = [round(float(values[a:b].mean()), 4) for a, b in zip(starts, ends, strict=True)]
        return curve

    def result(self) -> dict[str, Any]:
        """Numbers and manifest as JSON holds them; null for a perplexity that overflows."""
        metrics = {name: value if isfinite(value) else None for name, value in self.test.metrics.items()}
        return {
            "config": self.config.to_dict(),
            "test": asdict(self.test) | {"metrics": metrics},
            **self.about,
            "n_parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "manifest": manifest(),
        }

    def save(self, folder: Path) -> None:
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors``, the tokeniser if any, and ``result.json``.

        The result comes last: a folder without it holds no finished run.
        """
        write_json(folder / "config.json", self.config.to_dict())
        table = metrics_csv(self.rows)
        write_bytes(folder / "metrics.csv", table)
        write_tensors(folder / "model.safetensors", self.model.state_dict())
        if self.tokenizer is not None:
            self.tokenizer.save(folder / TOKENIZER)
        sha256 = hashlib.sha256(table).hexdigest()
        write_json(folder / "result.json", self.result() | {"metrics_sha256": sha256}, has_checksum=True)


_OWN = {"config", "test", "n_parameters", "seconds", "manifest", "metrics_sha256", CHECKSUM}
"""Entries of a result that are not in :attr:`Run.about`."""


def load_run(folder: Path | str) -> Run:
    """Reads what :meth:`Run.save` wrote; SbmtError if a file is missing, damaged, or does not fit the others."""
    folder = Path(folder)
    config = read_config(folder)
    if not (folder / "result.json").exists():
        do = "go on with --resume, or train again if it has no checkpoint"
        raise SbmtError(f"a finished run in {folder}", "one that was interrupted", do)
    result = printable(read_json(folder / "result.json"))
    try:
        if type(config).from_dict(result["config"]) != config:
            do = "restore the file that was changed, or train again"
            raise SbmtError(f"the same configuration in config.json and result.json of {folder}", "two", do)
        about = {name: value for name, value in result.items() if name not in _OWN}
        metrics = {name: inf if x is None else x for name, x in result["test"].get("metrics", {}).items()}
        test = Scores(**result["test"] | {"metrics": metrics})
        _check_numbers(test, about | {"seconds": result["seconds"]})
        rows = _read_metrics(folder / "metrics.csv", result.get("metrics_sha256"))
        model = _load_model(config, about.get("data", {}), folder)
        tokenizer = tokenizer_of(folder) if "tokenizer" in about.get("data", {}) else None
        return Run(config, model, rows, test, about, float(result["seconds"]), tokenizer)
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(f"the metrics and result of a run in {folder}", f"{error!r}", "train again") from error


def read_config(folder: Path | str) -> TrainingConfig:
    """The configuration in a run's folder; SbmtError if there is none, or it is damaged."""
    folder = Path(folder)
    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "train one: sbmt train --help says how")
    for name in ("config.json", "result.json", "metrics.csv", "model.safetensors", TOKENIZER, BEST):
        check_plain(folder / name)
    values = printable(read_json(folder / "config.json"))
    if not isinstance(values, dict) or "task" not in values:
        raise SbmtError(f"the name of a task in {folder / 'config.json'}", "none", "train again with this version")
    return choose("task", values["task"], CONFIGS).from_dict(values)


def printable(value: Any) -> Any:
    """A value from a file with the control characters in its texts escaped: a terminal would obey them."""
    if isinstance(value, dict):
        return {printable(name): printable(x) for name, x in value.items()}
    if isinstance(value, list):
        return [printable(x) for x in value]
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda c: repr(c[0])[1:-1], value) if isinstance(value, str) else value


def check_plain(path: Path) -> None:
    """Raises SbmtError if a device, a pipe or a folder has the name of a file that is to be read."""
    if path.exists() and not path.is_file():
        raise SbmtError(f"a plain file {path}", "a device, a pipe or a folder", "restore the file")


def _load_model(config: TrainingConfig, info: dict[str, Any], folder: Path) -> Any:
    """The trained model; sizes are compared before anything of them is built."""
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    least = config.n_layers * config.d_model * (config.d_model + config.d_hidden)
    if least > (n_weights := sum(tensor.numel() for tensor in tensors.values())):
        do = "restore the file that was changed, or train again"
        raise SbmtError(f"at least {least:,} weights in {path}, as config.json says", f"{n_weights:,}", do)
    if broken := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise SbmtError(f"finite weights in {path}", f"others in {broken[0]!r}", "restore the file, or train again")
    model = build_model(config, info)
    load_weights(model, tensors, folder)
    return model


def _check_numbers(test: Scores, about: dict[str, Any]) -> None:
    """Raises ValueError unless what commands print are numbers, and names where names should be."""
    numbers = [test.loss, test.accuracy, test.density, test.expected_density]
    numbers += [x for heads in test.densities for x in heads]
    numbers += [x for x in test.metrics.values() if x != inf] + list(about.get("interval", []))
    numbers += [about[name] for name in ("seconds", "n_test", "chance") if name in about]
    if not all(map(is_finite, numbers)):
        raise ValueError(f"{next(x for x in numbers if not is_finite(x))!r:.20} in the place of a number")
    if not isinstance(about.get("data", {}).get("sha256", ""), str):
        raise ValueError("no name of the data")


def _read_metrics(path: Path, sha256: str | None) -> list[dict[str, Any]]:
    """The table of metrics, compared with its checksum; older versions wrote none."""
    table = path.read_bytes() if path.exists() else None
    if table is None or sha256 not in (None, hashlib.sha256(table).hexdigest()):
        raise SbmtError(f"the metrics of the run in {path}", "others, or none", "restore them, or train again")
    kinds = {"split": str, "step": int}
    rows = csv.DictReader(io.StringIO(table.decode(), newline=""))
    return [{name: kinds.get(name, float)(x or "nan") for name, x in row.items()} for row in rows]


def best_row(config: TrainingConfig, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the evaluation on dev that did best; among equals, the first."""
    dev = [row for row in rows if row["split"] == "dev"]
    return min(dev, key=lambda row: row["loss"] if config.best_by == "loss" else -row["accuracy"])


def describe(
    config: TrainingConfig, data: TaskData, rows: list[dict[str, Any]], tests: dict[str, Scores]
) -> dict[str, Any]:
    """What a result says besides its scores: data, best step, and what to compare the scores with."""
    about: dict[str, Any] = {"data": data.info} if data.info else {}
    if config.has_dev:
        best = best_row(config, rows)
        about |= {"best_step": best["step"], "dev": {name: best[name] for name in ("accuracy", "loss")}}
    for name, scores in tests.items():
        mine = config.baselines(data, name, scores)
        about |= mine if name == "test" else {name: asdict(scores) | mine}
    return about


def metrics_csv(rows: list[dict[str, Any]]) -> bytes:
    """Rows as CSV, a column for every key that any of them has; six digits, and nothing for NaN."""
    table, columns = io.StringIO(), list(dict.fromkeys(name for row in rows for name in row)) or ["step"]
    writer = csv.DictWriter(table, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        cells = {k: "" if v != v else f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
        writer.writerow(cells)
    return table.getvalue().encode()


def manifest() -> dict[str, Any]:
    """What a number depends on besides its configuration: command, versions, hardware, date."""
    program = Path(sys.argv[0]).name
    return {
        "command": shlex.join(["sbmt" if program in ("sbmt", "__main__.py") else program, *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "sbmt": sbmt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
    }
