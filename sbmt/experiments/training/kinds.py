"""Which configuration a folder's ``config.json`` is of."""

from pathlib import Path

from sbmt.errors import SbmtError, choose
from sbmt.experiments.files import read_json
from sbmt.experiments.training.attention_config import AttentionConfig
from sbmt.experiments.training.config import RepeatedTokensConfig
from sbmt.experiments.training.language import GLUE_TASKS, MLM, GlueConfig, MlmConfig
from sbmt.experiments.training.long_range import LONG_RANGE_TASKS, LongRangeConfig

KINDS: dict[str, type[AttentionConfig]] = (
    dict.fromkeys(LONG_RANGE_TASKS, LongRangeConfig) | {MLM: MlmConfig} | dict.fromkeys(GLUE_TASKS, GlueConfig)
)
"""By task. Runs on repeated tokens name none."""


def read_config(folder: Path) -> AttentionConfig:
    """The configuration in a run's folder.

    Raises:
        SbmtError: If there is none, or it is damaged.
    """
    if not folder.is_dir():
        raise SbmtError("the folder of a run", folder, "train one: sbmt train --help says how")
    values = read_json(folder / "config.json")
    if not isinstance(values, dict) or "task" not in values:
        return RepeatedTokensConfig.from_dict(values)
    return choose("task", values["task"], KINDS).from_dict(values)
