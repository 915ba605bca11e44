"""How a command ends: after a mistake, Ctrl-C or SIGTERM with one line instead of a traceback.

Importing this module makes a process that was begun as ``sbmt``, ``python -m sbmt`` or ``python -m theory`` answer
Ctrl-C so from then on, for importing torch takes seconds. In other processes it does nothing.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from sbmt.errors import SbmtError

INTERRUPTED, TERMINATED = 130, 143
"""Exit codes after Ctrl-C and SIGTERM, as shells have them."""

IS_COMMAND = Path(*sys.argv[:1]).name in ("sbmt", "sbmt.exe") or sys.orig_argv[1:3] in (
    ["-m", "sbmt"],
    ["-m", "theory"],
)
"""Whether this process was begun as a command of ours, and is nothing else."""


def leave_at_once(*_: Any) -> None:
    """Ends the process in the middle of what it does, which is importing."""
    os.write(2, b"\nsbmt: stopped\n")
    os._exit(INTERRUPTED)


# Who began this process with the signal ignored, as shells do with what scripts put in the background, meant it.
_HEARS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if IS_COMMAND and _HEARS and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, leave_at_once)


def run_command(app: Callable[[], Any], name: str) -> None:
    """Calls a Typer application and ends with one line where it does not come to its own end.

    Exit codes: 2 after a mistake, or where files cannot be read or written; 130 after Ctrl-C; 143 after SIGTERM, which
    is answered as Ctrl-C is, so that nothing stays half-written.

    Args:
        app: The application.
        name: What the line begins with.
    """
    hears = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if hears:
        signal.signal(signal.SIGTERM, _leave)
    if signal.getsignal(signal.SIGINT) is leave_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(sys.stdout, "reconfigure"):  # or a file name that is no Unicode would end what prints it
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except SbmtError as error:
        _end(name, error, 2)
    except BrokenPipeError:  # the reader of our output has gone
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # of a full disk that our output goes to, for example
        _drop_output()
        file = "the output" if error.filename is None else error.filename
        do = "choose a place with room and rights"
        _end(name, SbmtError(f"to read or write {file}", error.strerror or error, do), 2)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _end(name, SbmtError("memory for what was asked", "none left", "ask for smaller sizes, or fewer at a time"), 2)
    except KeyboardInterrupt:
        _end(name, "stopped", INTERRUPTED)
    except SystemExit as leaving:
        if leaving.code in (INTERRUPTED, TERMINATED):  # Typer makes the former of Ctrl-C
            _end(name, "stopped", int(leaving.code))
        raise
    finally:
        if IS_COMMAND:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to stop
        if hears:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch, whose error has no type of its own, found no memory."""
    words = "can't allocate memory", "out of memory", "Storage size calculation overflowed"
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _leave(*_: Any) -> NoReturn:
    sys.exit(TERMINATED)


def _end(name: str, words: object, code: int) -> NoReturn:
    print(f"{name}: {words}", file=sys.stderr)
    sys.exit(code)


def _drop_output() -> None:
    """Lets what could not be printed go, or Python would try again while it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
