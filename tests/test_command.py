"""Tests how commands end: exit codes, the line that they print, and the name of the program."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sbmt.command import run_command
from sbmt.errors import SbmtError
from sbmt.experiments.cli import main

ROOT = Path(__file__).parents[1]


def start(*arguments, **settings):
    """Runs ``python -m`` in a separate process, with Ctrl-C handled as in a terminal."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **settings,
    )


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (SbmtError("a run", "none", "train one"), 2, "x: expected a run, got none: train one\n"),
        (FileNotFoundError(2, "No such file", "a.txt"), 2, "x: cannot read or write a.txt: No such file\n"),
        (MemoryError(), 2, "x: out of memory: "),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "x: out of memory: "),
        (KeyboardInterrupt(), 130, "x: stopped\n"),
        (SystemExit(130), 130, "x: stopped\n"),
        (SystemExit(143), 143, "x: stopped\n"),
        (SystemExit(2), 2, ""),
    ],
)
def test_every_end_has_its_exit_code_and_at_most_one_line(capsys, error, code, line):
    def app():
        raise error

    with pytest.raises(SystemExit) as stop:
        run_command(app, "x")
    err = capsys.readouterr().err
    assert stop.value.code == code
    assert err.startswith(line) and err.count("\n") == (1 if line else 0)


def test_other_errors_are_bugs_and_keep_their_traceback():
    def app():
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_command(app, "x")


def test_a_command_within_another_program_restores_its_signals():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_command(lambda: None, "x")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_sigterm_ends_a_command_with_one_line(capsys):
    with pytest.raises(SystemExit) as stop:
        run_command(lambda: os.kill(os.getpid(), signal.SIGTERM), "x")
    assert stop.value.code == 143 and capsys.readouterr().err == "x: stopped\n"


@pytest.mark.parametrize("program", ["sbmt", "/usr/lib/python3/site-packages/sbmt/__main__.py"])
@pytest.mark.parametrize("words", [["--help"], ["sample", "--help"], ["sample", "--frobnicate"]])
def test_usage_says_sbmt_however_python_was_started(monkeypatch, capsys, program, words):
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as stop:
        main()
    said = "".join(capsys.readouterr())
    assert re.search(rf"Usage: sbmt {'sample ' if 'sample' in words else ''}\[OPTIONS\]", said)
    assert (stop.value.code or 0) == (2 if "--frobnicate" in words else 0)


def test_version_prints_four_lines(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sbmt", "--version"])
    with pytest.raises(SystemExit) as stop:
        main()
    lines = capsys.readouterr().out.splitlines()
    assert not stop.value.code and [line.split()[0] for line in lines] == ["sbmt", "torch", "device", "backends"]
    assert re.fullmatch(r"sbmt \d+\.\d+\.\d+", lines[0]) and re.match(r"device (cpu|cuda \(.+\))$", lines[2])
    assert lines[3].startswith("backends dense, pyg, cpu")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc to see how far an import has come")
@pytest.mark.parametrize("module", ["sbmt", "theory"])
def test_ctrl_c_during_imports_prints_one_line(tmp_path, module):
    with start(module, "--help", cwd=tmp_path) as process:
        while process.poll() is None and "libtorch_python" not in Path(f"/proc/{process.pid}/maps").read_text():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, err.strip()) == (130, "sbmt: stopped")


def test_a_second_ctrl_c_while_python_cleans_up_changes_nothing():
    code = """if True:
        import os, signal, sys
        sys.argv = ["sbmt"]
        import sbmt.command, atexit
        atexit.register(os.kill, os.getpid(), signal.SIGINT)
        sbmt.command.run_command(lambda: os.kill(os.getpid(), signal.SIGINT), "sbmt")"""
    begin = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler), "capture_output": True}
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, **begin)
    assert ended.returncode == 130 and set(ended.stderr.split(b"\n")) == {b"", b"sbmt: stopped"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_reported(tmp_path):
    """Simulates output to a full disk, which Python would report again at exit, with a traceback."""
    with open("/dev/full", "w") as full, start("sbmt", "--version", cwd=tmp_path, stdout=full) as process:
        _, err = process.communicate()
    assert process.returncode == 2 and err.count("\n") == 1 and "No space left" in err
