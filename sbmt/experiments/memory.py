"""The memory of this process, and the peak that a call adds to it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError

MEBIBYTE = 2**20


def peak_of(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """MiB in use before a call, MiB that the call adds at its peak, and what it returns."""
    if sys.platform != "linux":
        raise SbmtError(f"memory can be measured only on Linux, not on {sys.platform}: measure it there")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present use
    before = _held("VmRSS")
    result = call()
    return before, _held("VmHWM") - before, result


def _held(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    [kibibytes] = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return 1024 * kibibytes / MEBIBYTE
