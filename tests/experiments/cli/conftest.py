"""The command line, called as a user does."""

import sys

import pytest

from sbmt.experiments.cli import main


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Calls it in an empty folder, with ``cache`` and ``data`` in it; returns exit code, output and errors."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sbmt", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    for name in ("cache", "data"):
        monkeypatch.setenv(f"SBMT_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    return call
