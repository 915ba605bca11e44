"""Every command describes itself, and offers every field of its configuration as an option."""

from dataclasses import fields

import pytest
from typer.main import get_command

from sbmt.experiments.cli import app
from sbmt.experiments.cli.train import attention_options
from sbmt.experiments.training import RecallConfig, RepeatedTokensConfig
from sbmt.experiments.training.tasks import LONG_RANGE_TASKS, GlueConfig, LongRangeConfig, MlmConfig

COMMANDS = {
    **{f"train {task}": (LongRangeConfig, {"task"}) for task in LONG_RANGE_TASKS},
    "train repeated-tokens": (RepeatedTokensConfig, {"task"}),
    "train recall": (RecallConfig, {"task", "length"}),
    "train mlm": (MlmConfig, {"task"}),
    "train glue": (GlueConfig, {"pretrained"}),
}
PLAIN = [name for name, command in get_command(app).commands.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("command", ["train", "data prepare", "data list", *PLAIN, *COMMANDS])
def test_every_command_has_help_and_every_field_an_option(run, command):
    code, out, _ = run(*command.split(), "--help")
    assert code == 0 and "Usage" in out
    if command in COMMANDS:
        config, hidden = COMMANDS[command]
        names = {field.name for field in fields(config)} - {"options", "option_defaults"} | set(attention_options())
        assert all("--" + name.replace("_", "-") in out for name in names - hidden)


@pytest.mark.bad_input
@pytest.mark.parametrize("arguments", ["paint", "train listops --steps many", "predict run"])
def test_what_is_no_command_exits_with_2(run, arguments):
    code, out, err = run(*arguments.split())
    assert code == 2 and "Traceback" not in out + err
