"""How a command ends: after a mistake, Ctrl-C or SIGTERM it prints one line instead of a traceback."""

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from sbmt.errors import SbmtError

INTERRUPTED, TERMINATED = 130, 143  # 128 plus the number of the signal, as shells report it


def leave_at_once(*_: Any) -> None:
    """Handles Ctrl-C while a command imports torch, which takes seconds: ends the process without unwinding."""
    os.write(2, b"\nsbmt: stopped\n")
    os._exit(INTERRUPTED)


if Path(*sys.argv[:1]).stem == "sbmt" or sys.orig_argv[1:3] in (["-m", "sbmt"], ["-m", "theory"]):
    os.environ["MPLBACKEND"] = "agg"  # commands show no windows, and a name that matplotlib lacks would end them
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # which it is not in a shell's background job
        signal.signal(signal.SIGINT, leave_at_once)


def run_command(app: Callable[[], Any], name: str) -> None:
    """Calls a Typer application, and prints one line, which begins with ``name``, if it fails or is stopped.

    Exit codes: 2 after a mistake, or when files cannot be read or written; 130 after Ctrl-C; 143 after SIGTERM, which
    is handled like Ctrl-C, so that no file is left half-written.
    """
    if handles_sigterm := signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys.stdout, "reconfigure"):  # file names need not be valid Unicode
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SbmtError as error:
        _end(name, error, 2)
    except OSError as error:  # among them a full disk behind a redirected stdout
        _discard(sys.stdout)
        if isinstance(error, BrokenPipeError):  # whoever read our output, such as head, has left
            sys.exit(0)
        file = "the output" if error.filename is None else error.filename
        _end(name, f"cannot read or write {file}: {error.strerror or error}", 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _end(name, "out of memory: ask for smaller sizes, or for fewer at a time", 2)
    except (KeyboardInterrupt, SystemExit) as leaving:  # Typer turns the former into SystemExit(130)
        if (code := getattr(leaving, "code", INTERRUPTED)) not in (INTERRUPTED, TERMINATED):
            raise
        _end(name, "stopped", code)
    finally:
        if handles_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch raises it as a RuntimeError, recognisable only by its words."""
    words = "can't allocate memory", "out of memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _end(name: str, words: object, code: int) -> NoReturn:
    if sys.stderr is not None:  # print would take stdout instead
        with suppress(OSError):
            print(f"{name}: {words}", file=sys.stderr)
    _discard(sys.stderr)
    sys.exit(code)


def _discard(stream: Any) -> None:
    """Drops what a stream cannot print: Python would try again at exit, and end with a code of its own."""
    try:
        if stream is not None:  # closed by the caller
            stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
