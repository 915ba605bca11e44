"""Tests that every command has a description, and an option for every field of its configuration."""

from dataclasses import fields

import pytest
from typer.main import get_command

from sbmt.experiments.cli import app
from sbmt.experiments.cli.train import attention_options
from sbmt.experiments.training.config import CONFIGS
from sbmt.experiments.training.tasks import GLUE_TASKS, GlueConfig

KINDS = {task.replace("_", "-"): kind for task, kind in CONFIGS.items() if task not in GLUE_TASKS}
KINDS["glue"] = GlueConfig
NO_OPTION = {"recall": {"length"}, "glue": {"pretrained"}}
PLAIN = [name for name, command in get_command(app).commands.items() if not hasattr(command, "commands")]


@pytest.mark.parametrize("command", ["train", "data prepare", "data list", *PLAIN, *(f"train {x}" for x in KINDS)])
def test_every_command_has_help_and_every_field_an_option(run, command):
    code, out, _ = run(*command.split(), "--help")
    assert code == 0 and "Usage" in out
    if command.startswith("train "):
        task = command.removeprefix("train ")
        names = {field.name for field in fields(KINDS[task])} | set(attention_options())
        names -= {"task", "options", "option_defaults"} | NO_OPTION.get(task, set())
        assert all("--" + name.replace("_", "-") in out for name in names)
