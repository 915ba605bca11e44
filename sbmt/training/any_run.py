"""Runs of either kind, on repeated tokens or on a long-range task, behind the same three functions."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbmt.errors import SbmtError
from sbmt.files import read_json
from sbmt.training.attention_config import AttentionConfig
from sbmt.training.config import RepeatedTokensConfig
from sbmt.training.long_range import LongRangeConfig
from sbmt.training.loop import Step, train
from sbmt.training.runs import Run, load_run

if TYPE_CHECKING:
    from sbmt.training.long_range_runs import LongRangeRun


def read_config(folder: Path) -> AttentionConfig:
    """The configuration in a run's folder: a long-range one names its task.

    Raises:
        SbmtError: If there is none, or it is damaged.
    """
    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "train one: sbmt train --help says how")
    values = read_json(folder / "config.json")
    kind = LongRangeConfig if isinstance(values, dict) and "task" in values else RepeatedTokensConfig
    return kind.from_dict(values)


def train_any(
    config: AttentionConfig, folder: Path, *, resume: bool, on_step: Callable[[Step], None] | None
) -> "Run | LongRangeRun":
    """Trains what the configuration says; see :func:`~sbmt.training.loop.train` and :func:`~sbmt.training.fit.fit`."""
    if isinstance(config, LongRangeConfig):
        from sbmt.training.fit import fit

        return fit(config, folder, resume=resume, on_step=on_step)
    if not isinstance(config, RepeatedTokensConfig):
        raise SbmtError("a configuration of a task", type(config).__name__, "take one of the named ones")
    return train(config, folder, resume=resume, on_step=on_step)


def load_any_run(folder: Path) -> "Run | LongRangeRun":
    """Reads a finished run.

    Raises:
        SbmtError: If a file is missing, damaged, or does not fit the configuration.
    """
    if isinstance(read_config(folder), LongRangeConfig):
        from sbmt.training.long_range_runs import load_long_range_run

        return load_long_range_run(folder)
    return load_run(folder)
