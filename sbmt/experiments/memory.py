"""The memory that a process holds, and the peak of what a call adds to it."""

import ctypes
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError

MEBIBYTE = 2**20


def held(field: str) -> int:
    """Bytes of memory that this process holds now (``"VmRSS"``) or has held at most (``"VmHWM"``), on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [kibibytes] = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return 1024 * kibibytes


def peak_of(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """MiB that this process holds before a call, MiB that the call adds to them at its peak, and what it returns."""
    if sys.platform != "linux":
        raise SbmtError("Linux, to measure memory", sys.platform, "measure it there")
    with suppress(AttributeError):  # only glibc has it: what was freed goes back, so that no step can use it unseen
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    before = held("VmRSS")
    result = call()
    return before / MEBIBYTE, (held("VmHWM") - before) / MEBIBYTE, result


def keep_freed_memory() -> None:
    """Has glibc keep the memory of whatever is freed, for as long as the process lives.

    By default each tensor of 32 MiB or more is given pages of its own, which the system clears one by one when they
    are first touched, and takes back when it is freed; a training step on a long sequence does so many times over.
    """
    with suppress(AttributeError, OSError, TypeError):  # other C libraries; TypeError on Windows
        mallopt = ctypes.CDLL(None).mallopt
        for threshold in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            mallopt(threshold, 1 << 30)  # bytes: the largest power of two that a C int can hold
