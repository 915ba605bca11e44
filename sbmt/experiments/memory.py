"""The peak that a call adds to the memory of this process."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from sbmt.errors import SbmtError


def peak_of(call: Callable[[], object]) -> float:
    """MiB that a call adds to the memory of this process at its peak; SbmtError where the system is not Linux."""
    if sys.platform != "linux":
        raise SbmtError(f"memory can be measured only on Linux, not on {sys.platform}: measure it there")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present use
    before = _peak()
    call()
    return _peak() - before


def _peak() -> float:
    [kibibytes] = re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    return int(kibibytes) / 1024
