"""The command line, called as a user does."""

import sys
from dataclasses import fields

import pytest

from sbmt.experiments.cli import main
from sbmt.experiments.cli.options import attention_options


def option_names(config):
    """The names that a command with this configuration offers."""
    own = {field.name for field in fields(config)} - {"options", "option_defaults"}
    return own | set(attention_options())


@pytest.fixture
def command_line(monkeypatch, capsys, tmp_path):
    """Calls it in an empty folder; returns exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sbmt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return call
