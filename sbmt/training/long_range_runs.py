"""A run on a long-range task on disk, and the data that it is about."""

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sbmt.errors import SbmtError
from sbmt.files import read_json, read_tensors, write_bytes, write_json, write_tensors
from sbmt.tasks.folders import prepared_folder
from sbmt.tasks.prepared import Prepared, Split, open_prepared
from sbmt.training.callbacks import metrics_csv
from sbmt.training.long_range import LongRangeConfig
from sbmt.training.module import Scores, build_long_range_model
from sbmt.training.runs import METRICS, POINTS, load_weights, manifest


@dataclass(frozen=True, eq=False)
class LongRangeRun:
    """A finished run.

    Attributes:
        config: What was asked for.
        model: The weights that did best on dev.
        rows: The table of metrics.
        test: Scores on the test examples.
        about: What else the result says: data, test interval, chance, best step.
        seconds: Wall-clock time of training, for orientation only.
    """

    config: LongRangeConfig
    model: nn.Module
    rows: list[dict[str, Any]]
    test: Scores
    about: dict[str, Any]
    seconds: float

    def result(self) -> dict[str, Any]:
        """Numbers and manifest as JSON holds them."""
        return {
            "config": self.config.to_dict(),
            "test": asdict(self.test),
            **self.about,
            "n_parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "manifest": manifest(),
        }

    def curve(self) -> dict[str, list[float]]:
        """Loss, accuracy and density of training batches: means over equal stretches, :data:`POINTS` at most."""
        mine = [row for row in self.rows if row["split"] == "train"]
        size = -(-len(mine) // POINTS)
        parts = [mine[start : start + size] for start in range(0, len(mine), size)]
        curve = {"step": [float(part[-1]["step"]) for part in parts]}
        return curve | {
            name: [round(sum(row[name] for row in part) / len(part), 4) for part in parts] for name in METRICS
        }

    def save(self, folder: Path) -> None:
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors`` and ``result.json``."""
        write_json(folder / "config.json", self.config.to_dict())
        write_bytes(folder / "metrics.csv", metrics_csv(self.rows))
        write_tensors(folder / "model.safetensors", self.model.state_dict())
        write_json(folder / "result.json", self.result())


def load_long_range_run(folder: Path) -> LongRangeRun:
    """Reads a run that :meth:`LongRangeRun.save` wrote.

    Raises:
        SbmtError: If a file is missing, damaged, or does not fit the configuration.
    """
    config = LongRangeConfig.from_dict(read_json(folder / "config.json"))
    result = read_json(folder / "result.json")
    try:
        model = build_long_range_model(config, result["data"])
        load_weights(model, read_tensors(folder / "model.safetensors"), folder)
        with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
            rows = [_numbers(row) for row in csv.DictReader(file)]
        about = {name: result[name] for name in ("data", "best_step", "dev", "interval", "chance", "n_test")}
        return LongRangeRun(config, model, rows, Scores(**result["test"]), about, float(result["seconds"]))
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(f"the metrics and result of a run in {folder}", f"{error!r}", "train again") from error


def open_task(config: LongRangeConfig) -> Prepared:
    """The prepared examples that a configuration names.

    Raises:
        SbmtError: If they are not there, or are another task's.
    """
    prepared = open_prepared(prepared_folder() / config.data_name)
    if prepared.info["task"] != config.task:
        raise SbmtError(f"examples of {config.task}", f"{prepared.info['task']} in {prepared.folder}", "name others")
    return prepared


def split_of(prepared: Prepared, config: LongRangeConfig, name: str) -> Split:
    """A split as a run sees it. With the pipeline's quirks, text has no dev of its own: it selects on test."""
    if config.quirks and config.task == "text" and name != "test":
        if name == "dev":
            return prepared.splits["test"]
        parts = prepared.splits["train"], prepared.splits["dev"]
        indices, labels = (np.concatenate([getattr(part, x) for part in parts]) for x in ("indices", "labels"))
        extras = {x: np.concatenate([part.extras[x] for part in parts]) for x in parts[0].extras}
        return Split(indices, labels, parts[0].symbols, parts[0].offsets, parts[0].lengths, extras)
    return prepared.splits[name]


def describe(config: LongRangeConfig, prepared: Prepared, rows: list[dict[str, Any]], test: Scores) -> dict[str, Any]:
    """What a result says besides its scores: data, best step, number of test examples, 95 % interval, chance.

    The interval is Wilson's, over test examples; chance is always answering training's commonest label.
    """
    from scipy.stats import binomtest

    labels = split_of(prepared, config, "test").labels[: config.test_examples]
    n, right = len(labels), round(test.accuracy * len(labels))
    interval = binomtest(right, n).proportion_ci(0.95, "wilson")
    commonest = int(np.bincount(split_of(prepared, config, "train").labels).argmax())
    dev = [row for row in rows if row["split"] == "dev"]
    best = max(dev, key=lambda row: row["accuracy"])
    names = ("name", "task", "origin", "sha256", "class_names", "vocab_size", "first_id", "n_documents", "settings")
    return {
        "data": {name: prepared.info[name] for name in names} | {"n_train": len(split_of(prepared, config, "train"))},
        "best_step": best["step"],
        "dev": {"accuracy": best["accuracy"], "loss": best["loss"]},
        "n_test": n,
        "interval": [round(float(interval.low), 4), round(float(interval.high), 4)],
        "chance": float((labels == commonest).mean()),
    }


def _numbers(row: dict[str, str]) -> dict[str, Any]:
    return {k: v if k == "split" else int(v) if k == "step" else float(v or "nan") for k, v in row.items()}
