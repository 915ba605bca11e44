"""Runs of either kind, on repeated tokens or on prepared examples, behind the same two functions."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbmt.errors import SbmtError
from sbmt.experiments.training.attention_config import AttentionConfig
from sbmt.experiments.training.config import RepeatedTokensConfig
from sbmt.experiments.training.kinds import read_config
from sbmt.experiments.training.loop import Step, train
from sbmt.experiments.training.runs import Run, load_run
from sbmt.experiments.training.sequence_config import SequenceConfig

if TYPE_CHECKING:
    from sbmt.experiments.training.task_runs import TaskRun


def train_any(
    config: AttentionConfig, folder: Path, *, resume: bool, on_step: Callable[[Step], None] | None
) -> "Run | TaskRun":
    """Trains what the configuration says; see ``train`` and ``fit``."""
    if isinstance(config, SequenceConfig):
        from sbmt.experiments.training.fit import fit

        return fit(config, folder, resume=resume, on_step=on_step)
    if not isinstance(config, RepeatedTokensConfig):
        raise SbmtError("a configuration of a task", type(config).__name__, "take one of the named ones")
    return train(config, folder, resume=resume, on_step=on_step)


def load_any_run(folder: Path) -> "Run | TaskRun":
    """Reads a finished run.

    Raises:
        SbmtError: If a file is missing, damaged, or does not fit the configuration.
    """
    if isinstance(read_config(folder), SequenceConfig):
        from sbmt.experiments.training.task_runs import load_task_run

        return load_task_run(folder)
    return load_run(folder)
