"""How a command ends: after a mistake, Ctrl-C or SIGTERM it prints one line instead of a traceback.

Importing torch takes seconds, during which a user may press Ctrl-C. In a process that was started as ``sbmt``,
``python -m sbmt`` or ``python -m theory``, importing this module is therefore enough to get that one line. In any
other process the import changes nothing.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from sbmt.errors import SbmtError

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and SIGTERM: 128 plus the number of the signal, as shells report it."""

IS_COMMAND = Path(*sys.argv[:1]).name in ("sbmt", "sbmt.exe") or sys.orig_argv[1:3] in (
    ["-m", "sbmt"],
    ["-m", "theory"],
)
"""Whether this process was started as one of our commands."""


if IS_COMMAND:
    os.environ["MPLBACKEND"] = "agg"  # commands show no windows, and a name that matplotlib lacks would end them


def leave_at_once(*_: Any) -> None:
    """Handles Ctrl-C while Python is still importing: ends the process without unwinding."""
    os.write(2, b"\nsbmt: stopped\n")
    os._exit(INTERRUPTED)


# Shells start the background jobs of a script with SIGINT ignored; we leave that as it is.
_HEARS_CTRL_C = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if IS_COMMAND and _HEARS_CTRL_C and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, leave_at_once)


def run_command(app: Callable[[], Any], name: str) -> None:
    """Calls a Typer application, and prints one line if it fails or is stopped.

    Exit codes: 2 after a mistake, or when files cannot be read or written; 130 after Ctrl-C; 143 after SIGTERM, which
    is handled like Ctrl-C so that no file is left half-written.

    Args:
        app: The application.
        name: What the line begins with.
    """
    handles_sigterm = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if handles_sigterm:
        signal.signal(signal.SIGTERM, _leave)
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys.stdout, "reconfigure"):  # file names need not be valid Unicode
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SbmtError as error:
        _end(name, error, 2)
    except BrokenPipeError:  # whoever read our output, such as head, has left
        _drop_unprinted(sys.stdout)
        sys.exit(0)
    except OSError as error:  # among them a full disk behind a redirected stdout
        _drop_unprinted(sys.stdout)
        file = "the output" if error.filename is None else error.filename
        do = "choose a place with free space that you may write to"
        _end(name, SbmtError(f"to read or write {file}", error.strerror or error, do), 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _end(name, "out of memory: ask for smaller sizes, or for fewer at a time", 2)
    except KeyboardInterrupt:
        _end(name, "stopped", INTERRUPTED)
    except SystemExit as leaving:
        if leaving.code in (INTERRUPTED, TERMINATED):  # Typer turns Ctrl-C into the former
            _end(name, "stopped", int(leaving.code))
        raise
    finally:
        if IS_COMMAND:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop, only Python's own shutdown
        if handles_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; torch raises it as a RuntimeError, recognisable only by its words."""
    words = "can't allocate memory", "out of memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _leave(*_: Any) -> NoReturn:
    sys.exit(TERMINATED)


def _end(name: str, words: object, code: int) -> NoReturn:
    if sys.stderr is not None:  # print would take stdout instead
        with suppress(OSError):
            print(f"{name}: {words}", file=sys.stderr)
        _drop_unprinted(sys.stderr)
    sys.exit(code)


def _drop_unprinted(stream: Any) -> None:
    """Discards what a stream cannot print: Python would try again at exit, and end with a code of its own."""
    if stream is None:  # closed by the caller
        return
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
