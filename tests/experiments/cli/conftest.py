"""Fixtures that call the command line as users do."""

import sys
from functools import partial

import pytest
import torch

from sbmt.experiments.cli import main


def call_main(monkeypatch, capsys, *arguments):
    """Calls ``sbmt`` with the given arguments, and returns the exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["sbmt", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Calls ``sbmt`` in an empty folder with ``cache`` and ``data``; returns the exit code, output and errors."""
    for name in ("cache", "data"):
        monkeypatch.setenv(f"SBMT_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    yield partial(call_main, monkeypatch, capsys)
    torch.set_flush_denormal(False)  # sbmt sparsify sets it


@pytest.fixture
def succeed(run):
    """Calls ``sbmt``, checks that it succeeds, and returns the output."""

    def call(*arguments):
        code, out, err = run(*arguments)
        assert code == 0, err
        return out

    return call


@pytest.fixture
def refused(run):
    """Calls ``sbmt``, and checks that it ends with exit code 2 and one line that contains the given words."""

    def call(arguments, words):
        code, out, err = run(*(arguments.split() if isinstance(arguments, str) else arguments))
        assert code == 2 and "Traceback" not in out, (arguments, out, err)
        assert err.startswith("sbmt: ") and err.count("\n") == 1 and words in err, (arguments, err)

    return call
