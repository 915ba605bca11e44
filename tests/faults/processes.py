"""Commands in processes of their own, with real signals, at the cost of a fork instead of an import of torch."""

import functools
import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sbmt.command import run_command
from tests.faults.commands import call_small

PRELOADED = (
    "sbmt.experiments.cli",
    "sbmt.experiments.training.fit",
    "sbmt.experiments.plots.comparison",
    "theory.__main__",
    "tests.faults.commands",
)
WAIT = 240
"""Seconds after which a process is taken for hanging, on however busy a machine."""


@functools.cache
def _server():
    """A process that has imported the library and forks from that state."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.processes", *PRELOADED])
    return context


def _call(arguments, folder, environment, prepare, given, output, module):
    """What the process does: a group of its own, its own output, and the command line as a user calls it."""
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    for number, path in ((1, output / "out"), (2, output / "err")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    name = {"sbmt.experiments.cli": "sbmt"}.get(module, "theory")
    sys.argv = [name, *arguments]
    if prepare is not None:
        prepare(*given)
    run_command(importlib.import_module(module).app, name)


@dataclass
class Running:
    """A command that was started."""

    process: multiprocessing.Process
    output: Path
    group: int = field(init=False)

    def __post_init__(self):
        self.group = self.process.pid

    @property
    def out(self):
        return (self.output / "out").read_text()

    @property
    def err(self):
        return (self.output / "err").read_text()

    def wait_for(self, has_come: Callable[[], bool]):
        """Waits until something has come about, or the process has ended."""
        end = time.monotonic() + WAIT
        while not has_come() and self.process.is_alive():
            assert time.monotonic() < end, f"hangs\n{self.out}\n{self.err}"
            time.sleep(0.01)

    def send(self, number, *, to_group=True):
        """Sends a signal, as a terminal does to all processes in the foreground."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, number) if to_group else os.kill(self.group, number)

    def end(self):
        """Waits for the end; returns the exit code, -N where signal N ended it."""
        self.process.join(WAIT)
        code = self.process.exitcode
        if code is None:
            self.send(signal.SIGKILL)
            raise AssertionError(f"hangs\n{self.out}\n{self.err}")
        return code


def start(line, folder, *, prepare=None, given=(), module="sbmt.experiments.cli"):
    """Starts a command in a folder; ``prepare(*given)`` is called in its process before.

    What it prints goes into the files ``out`` and ``err`` of the folder.
    """
    environment = {name: value for name, value in os.environ.items() if name.startswith(("SBMT_", "COLUMNS"))}
    values = (line.split(), str(folder), environment, prepare, given, folder, module)
    process = _server().Process(target=_call, args=values)
    process.start()
    return Running(process, Path(folder))


def signal_at(module, name, number, sent):
    """Makes a process small, and send itself a signal before a function's call of that number, counted from 0."""
    call_small()
    owner, calls = importlib.import_module(module), iter(range(sys.maxsize))
    function = getattr(owner, name)

    @functools.wraps(function)
    def counted(*arguments, **keywords):
        if next(calls) == number:
            os.kill(os.getpid(), sent)
        return function(*arguments, **keywords)

    setattr(owner, name, counted)


def children_of(pid):
    """Of a process that runs, by the kernel's own list."""
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except FileNotFoundError:
        return set()


def state_of(pid):
    """The kernel's letter for what a process does: T where it is halted, Z where it ended and was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def is_alive(pid):
    """Whether a process has not ended."""
    return state_of(pid) not in ("", "Z")
