"""Handles Ctrl-C while a command imports torch, which takes seconds. This module must therefore be imported first."""

import os
import signal
import sys

INTERRUPTED = 130  # 128 plus the number of the signal, as shells report it


def leave_at_once(*_: object) -> None:
    """Ends the process without unwinding the stack."""
    os.write(2, b"\nsbmt: stopped\n")
    os._exit(INTERRUPTED)


_program = os.path.splitext(os.path.basename("".join(sys.argv[:1])))[0]
if _program == "sbmt" or sys.orig_argv[1:3] in (["-m", "sbmt"], ["-m", "theory"]):
    os.environ["MPLBACKEND"] = "agg"  # commands open no windows; an unknown backend here would make them fail
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # unless it is ignored, as in background jobs
        signal.signal(signal.SIGINT, leave_at_once)
