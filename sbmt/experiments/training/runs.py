"""A run on disk: configuration, metrics, weights, result with manifest."""

import csv
import hashlib
import io
import os
import platform
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sbmt
from sbmt.errors import SbmtError
from sbmt.experiments.files import read_json, read_tensors, write_bytes, write_json, write_tensors
from sbmt.experiments.training.attention_config import AttentionConfig
from sbmt.experiments.training.config import RepeatedTokensConfig
from sbmt.experiments.training.evaluate import Evaluation
from sbmt.models import TokenTagger

METRICS = ("loss", "accuracy", "density")
POINTS = 50  # of a curve in a summary
SHIPPED = Path(__file__).parent / "shipped" / "repeated_tokens"


@dataclass(frozen=True, eq=False)
class Run:
    """A finished training run.

    Attributes:
        config: What was asked for.
        model: The trained model.
        history: Per step ``loss``, ``accuracy`` and ``density`` of the training batch.
        test: The final evaluation.
        seconds: Wall-clock time of training, for orientation only.
    """

    config: RepeatedTokensConfig
    model: TokenTagger
    history: dict[str, list[float]]
    test: Evaluation
    seconds: float

    def curve(self) -> dict[str, list[float]]:
        """Means over equal stretches of training, at most :data:`POINTS` of them, and the step each ends with."""
        n_steps = len(self.history["loss"])
        ends = sorted({round(n_steps * (i + 1) / POINTS) for i in range(POINTS)} - {0})
        starts = [0, *ends[:-1]]
        curve: dict[str, list[float]] = {"step": [float(end) for end in ends]}
        for name in METRICS:
            values = torch.tensor(self.history[name], dtype=torch.float64)
            curve[name] = [round(float(values[a:b].mean()), 4) for a, b in zip(starts, ends, strict=True)]
        return curve

    def result(self) -> dict[str, Any]:
        """Numbers and manifest as JSON holds them."""
        return {
            "config": self.config.to_dict(),
            "test": asdict(self.test),
            "n_parameters": sum(p.numel() for p in self.model.parameters()),
            "seconds": round(self.seconds, 1),
            "manifest": manifest(),
        }

    def save(self, folder: Path) -> None:
        """Writes ``config.json``, ``metrics.csv``, ``model.safetensors`` and ``result.json``."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["step", *METRICS])
        rows = zip(*(self.history[name] for name in METRICS), strict=True)
        writer.writerows([step, *(f"{x:.6g}" for x in row)] for step, row in enumerate(rows, start=1))
        write_json(folder / "config.json", self.config.to_dict())
        write_bytes(folder / "metrics.csv", table.getvalue().encode())
        write_tensors(folder / "model.safetensors", self.model.state_dict())
        write_result(folder, self.result(), table.getvalue().encode())


def manifest() -> dict[str, Any]:
    """What a number depends on besides its configuration: command, versions, hardware, date."""
    program = Path(sys.argv[0]).name
    return {
        "command": " ".join(["sbmt" if program in ("sbmt", "__main__.py") else program, *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "sbmt": sbmt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
    }


def load_run(folder: Path) -> Run:
    """Reads a run that :meth:`Run.save` wrote.

    Raises:
        SbmtError: If a file is missing, damaged, or does not fit the configuration.
    """
    from sbmt.experiments.training.loop import build_model

    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "train one with: sbmt train repeated-tokens")
    config = RepeatedTokensConfig.from_dict(read_json(folder / "config.json"))
    result = read_result(folder)
    model = build_model(config)
    load_weights(model, read_tensors(folder / "model.safetensors"), folder)
    check_same(config, result, folder)
    try:
        history = _read_metrics(folder / "metrics.csv")
        test, seconds = Evaluation(**result["test"]), float(result["seconds"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise SbmtError(f"the metrics and result of a run in {folder}", f"{error!r}", "train again") from error
    return Run(config, model, history, test, seconds)


def write_result(folder: Path, result: dict[str, Any], table: bytes) -> None:
    """Writes ``result.json``, the last file of a run, with checksums of itself and of ``metrics.csv``."""
    sha256 = hashlib.sha256(table).hexdigest()
    write_json(folder / "result.json", result | {"metrics_sha256": sha256}, has_checksum=True)


def read_result(folder: Path) -> Any:
    """Reads ``result.json``.

    Raises:
        SbmtError: If it or ``metrics.csv`` is missing or not what a checksum says; what older versions wrote has none.
    """
    result, path = read_json(folder / "result.json"), folder / "metrics.csv"
    if isinstance(result, dict) and "metrics_sha256" in result:
        got = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "none"
        if got != result["metrics_sha256"]:
            raise SbmtError(f"the metrics of the run in {path}", "others, or none", "restore them, or train again")
    return result


def check_same(config: AttentionConfig, result: Any, folder: Path) -> None:
    """Raises SbmtError unless a run's two files hold the same configuration, so that damage to either one shows."""
    theirs = result.get("config") if isinstance(result, dict) else None
    if type(config).from_dict(theirs) != config:  # type: ignore[arg-type]
        do = "restore the file that was changed, or train again"
        raise SbmtError(f"the same configuration in config.json and result.json of {folder}", "two", do)


def load_weights(model: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Loads weights into a model, strictly.

    Raises:
        SbmtError: If names or shapes do not fit.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise SbmtError(f"weights in {folder} that fit its config.json", reason, "train again") from error


def _read_metrics(path: Path) -> dict[str, list[float]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in METRICS}
