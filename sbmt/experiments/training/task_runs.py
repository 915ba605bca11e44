"""A run on prepared examples, on disk."""

import csv
import hashlib
from dataclasses import asdict, dataclass
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.experiments.data.language.tokenizer import Tokenizer
from sbmt.experiments.files import CHECKSUM, read_json, read_tensors, write_bytes, write_json, write_tensors
from sbmt.experiments.training.build import build_model
from sbmt.experiments.training.callbacks import metrics_csv
from sbmt.experiments.training.f1 import glue_metrics
from sbmt.experiments.training.kinds import read_config
from sbmt.experiments.training.language import MlmConfig
from sbmt.experiments.training.module import Scores
from sbmt.experiments.training.runs import (
    METRICS,
    POINTS,
    check_same,
    load_weights,
    manifest,
    read_result,
    write_result,
)
from sbmt.experiments.training.sequence_config import SequenceConfig
from sbmt.experiments.training.task_data import TOKENIZER, BlockFeed, TaskData, tokenizer_of


@dataclass(frozen=True, eq=False)
class TaskRun:
    """A finished run.

    Attributes:
        config: What was asked for.
        model: The weights that did best on dev.
        rows: The table of metrics.
        test: Scores on the test examples.
        about: What else the result says; see :func:`describe`.
        seconds: Wall-clock time of training, for orientation only.
        tokenizer: Of tasks on text in words.
    """

    config: SequenceConfig
    model: nn.Module
    rows: list[dict[str, Any]]
    test: Scores
    about: dict[str, Any]
    seconds: float
    tokenizer: Tokenizer | None = None

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
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors``, ``result.json``, and the tokeniser if any."""
        write_json(folder / "config.json", self.config.to_dict())
        table = metrics_csv(self.rows)
        write_bytes(folder / "metrics.csv", table)
        write_tensors(folder / "model.safetensors", self.model.state_dict())
        if self.tokenizer is not None:
            self.tokenizer.save(folder / TOKENIZER)
        write_result(folder, self.result(), table)


def load_task_run(folder: Path) -> TaskRun:
    """Reads a run that :meth:`TaskRun.save` wrote.

    Raises:
        SbmtError: If a file is missing, damaged, or does not fit the configuration.
    """
    config = read_config(folder)
    result = read_result(folder)
    try:
        if not isinstance(config, SequenceConfig):
            raise SbmtError("a run on prepared examples", type(config).__name__, "name another folder")
        check_same(config, result, folder)
        model = build_model(config, result["data"])
        load_weights(model, read_tensors(folder / "model.safetensors"), folder)
        with (folder / "metrics.csv").open(encoding="utf-8", newline="") as file:
            rows = [_numbers(row) for row in csv.DictReader(file)]
        tokenizer = tokenizer_of(folder) if "tokenizer" in result["data"] else None
        about = {name: value for name, value in result.items() if name not in _OWN}
        return TaskRun(config, model, rows, Scores(**result["test"]), about, float(result["seconds"]), tokenizer)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, SbmtError):
            raise
        raise SbmtError(f"the metrics and result of a run in {folder}", f"{error!r}", "train again") from error


_OWN = {"config", "test", "n_parameters", "seconds", "manifest", "metrics_sha256", CHECKSUM}


def load_pretrained(encoder: nn.Module, folder: Path) -> dict[str, Any]:
    """Gives an encoder the weights of a pre-training run's, and returns what results record of that run.

    Of a longer position table the first rows are taken.

    Raises:
        SbmtError: If the run is missing or damaged, or its encoder is another one.
    """
    path = folder / "model.safetensors"
    tensors = read_tensors(path)
    state = {name.removeprefix("encoder."): x for name, x in tensors.items() if name.startswith("encoder.")}
    positions = "position_embedding.weight"
    if positions in state:
        state[positions] = state[positions][: encoder.state_dict()[positions].shape[0]]
    load_weights(encoder, state, folder)
    result = read_json(folder / "result.json")
    try:
        perplexity = result["test"]["metrics"]["perplexity"]
    except (KeyError, TypeError) as error:
        raise SbmtError(f"the result of a pre-training run in {folder}", f"{error!r}", "train again") from error
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return {"folder": str(folder), "sha256": sha256, "perplexity": perplexity}


def describe(
    config: SequenceConfig, data: TaskData, rows: list[dict[str, Any]], tests: dict[str, Scores]
) -> dict[str, Any]:
    """What a result says besides its scores: data, best step, number of test examples, what to compare with.

    Of labelled examples that is a 95 % interval, Wilson's over test examples, and chance: always answering training's
    commonest label. Of a masked language model it is how well the frequency of every token alone would do.
    """
    dev = [row for row in rows if row["split"] == "dev"]
    best = min(dev, key=lambda row: row["loss"] if config.best_by == "loss" else -row["accuracy"])
    about = {
        "data": data.info,
        "best_step": best["step"],
        "dev": {name: best[name] for name in ("accuracy", "loss")},
        "n_test": min(len(data.feeds["test"]), config.test_examples or len(data.feeds["test"])),
    }
    if isinstance(config, MlmConfig):
        return about | {"frequencies": _frequencies(data, about["n_test"])}
    for name, scores in tests.items():
        mine = _beside(data, name, scores, config.test_examples)
        about |= mine if name == "test" else {name: asdict(scores) | mine}
    return about


def _beside(data: TaskData, name: str, scores: Scores, n_examples: int | None) -> dict[str, Any]:
    from scipy.stats import binomtest

    labels = data.labels[name][:n_examples]
    n, right = len(labels), round(scores.accuracy * len(labels))
    interval = binomtest(right, n).proportion_ci(0.95, "wilson")
    commonest = int(np.bincount(data.labels["train"]).argmax())
    bounds = [round(float(interval.low), 4), round(float(interval.high), 4)]
    beside = {"n_test": n, "interval": bounds, "chance": float((labels == commonest).mean())}
    if scores.metrics:
        truth = torch.from_numpy(np.array(labels))
        constant = glue_metrics(len(data.info["class_names"]))
        beside["chance_metrics"] = {x: float(m(torch.full_like(truth, commonest), truth)) for x, m in constant.items()}
    return beside


_COUNTED = 1 << 24  # tokens of the training text whose frequencies are counted


def _frequencies(data: TaskData, n_test: int) -> dict[str, float]:
    """How well the frequencies of tokens in training's text alone do on the first test blocks."""
    train, test = data.feeds["train"], data.feeds["test"]
    assert isinstance(train, BlockFeed) and isinstance(test, BlockFeed)
    counts = np.bincount(train.blocks.symbols[:_COUNTED], minlength=data.info["vocab_size"]) + 1.0
    tokens = test.blocks.symbols[: n_test * (test.blocks.length - 2)]
    loss = float(-np.log(counts / counts.sum())[tokens].mean())
    return {"perplexity": exp(loss), "accuracy": float((tokens == counts.argmax()).mean())}


def _numbers(row: dict[str, str]) -> dict[str, Any]:
    return {k: v if k == "split" else int(v) if k == "step" else float(v or "nan") for k, v in row.items()}
