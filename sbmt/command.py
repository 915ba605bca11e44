"""Runs a command and reports user errors, Ctrl-C and SIGTERM in one line instead of a traceback."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from sbmt.errors import SbmtError
from sbmt.interrupt import INTERRUPTED, leave_at_once

TERMINATED = 143  # 128 plus the number of the signal, as shells report it


def run_command(app: Callable[[], Any], name: str) -> None:
    """Calls a Typer application and, if it fails or is stopped, prints one line that begins with ``name``.

    The exit code is 2 after a user error or a failure to read or write a file, 130 after Ctrl-C, and 143 after SIGTERM.
    Like Ctrl-C, SIGTERM unwinds the stack, so that no file is left half-written.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    if is_own_process := signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys.stdout, "reconfigure"):  # file names need not be valid Unicode
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SbmtError as error:
        _end(name, error, 2)
    except BrokenPipeError:  # the program that reads our output, such as head, has ended
        _discard_output()
        sys.exit(0)
    except OSError as error:  # for example, stdout may be redirected to a full disk
        _discard_output()
        _end(name, f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}", 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _end(name, "out of memory: choose smaller sizes, or process fewer at a time", 2)
    except (KeyboardInterrupt, SystemExit) as leaving:  # Typer turns the former into SystemExit(130)
        if (code := getattr(leaving, "code", INTERRUPTED)) not in (INTERRUPTED, TERMINATED):
            raise
        _end(name, "stopped", code)
    finally:
        signal.signal(signal.SIGTERM, before)
        if is_own_process:  # so that a second Ctrl-C during cleanup does not change the exit code
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means out of memory; torch raises RuntimeErrors, which only their message identifies."""
    words = "can't allocate memory", "out of memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _end(name: str, words: object, code: int) -> NoReturn:
    print(f"{name}: {words}", file=sys.stderr)
    sys.exit(code)


def _discard_output() -> None:
    """Discards output that cannot be written; otherwise Python would try again at exit and change the exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
