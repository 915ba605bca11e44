"""A fresh process for a measurement, and how much memory a process holds."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError

STATUS = Path("/proc/self/status")
STEADY = {
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
}
"""Environment in which what is freed goes back to the system at once, so that a peak is what was in use.

By default glibc keeps freed memory for later, by rules that learn from what came before: the same forward pass of a few
MiB then has a peak that varies by half. Elsewhere than under glibc the settings do nothing.
"""


def in_fresh_process(module: str, job: Any, environment: dict[str, str] | None = None) -> Any:
    """What ``python -m module JOB`` prints, both as JSON; or ``{"missing": why}`` where it fails.

    Args:
        module: A module that is run, such as ``"sbmt.cost.memory"``.
        job: What it is told.
        environment: Variables to set beside those of this process.
    """
    command = [sys.executable, "-m", module, json.dumps(job)]
    variables = os.environ | (environment or {})
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return {"missing": f"does not run here: {last[:160]}"}
    return json.loads(done.stdout)


def held(field: str, status: Path = STATUS) -> int:
    """Bytes of memory that this process holds now (``"VmRSS"``) or held at most (``"VmHWM"``).

    Not ``resource.getrusage``: its maximum starts at what the parent held when it started us, which after a few races
    is more than any step takes.

    Raises:
        SbmtError: Where the kernel does not tell, that is elsewhere than on Linux.
    """
    try:
        lines = status.read_text().splitlines()
    except OSError as error:
        raise SbmtError(f"a file {status}", error.strerror or error, "measure memory on Linux") from error
    found = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
    if not found:
        raise SbmtError(f"{field} in {status}", "none", "measure memory on Linux")
    return 1024 * found[0]


def give_back() -> None:
    """Hands memory that was freed, but kept for later, back to the system, so that the step cannot use it unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def reset_peak() -> None:
    """Sets the process's peak to what it holds now, so that building the inputs does not count.

    Raises:
        SbmtError: Where the kernel does not allow it.
    """
    path = Path(f"/proc/{os.getpid()}/clear_refs")
    try:
        path.write_text("5")
    except OSError as error:
        raise SbmtError(f"to write {path}", error.strerror or error, "measure memory on Linux") from error
