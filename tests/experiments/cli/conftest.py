"""The command line, called as a user does."""

import sys

import pytest

from sbmt.experiments.cli import main


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
