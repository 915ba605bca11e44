"""The memory that a process holds, and a fresh process to measure it in, where no step can reuse what was freed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError

MEBIBYTE = 2**20
STEADY = {
    "MALLOC_MMAP_THRESHOLD_": "4096",  # any larger block has pages of its own, so that no step reuses what was freed
    "MALLOC_TRIM_THRESHOLD_": "0",
    "MALLOC_TOP_PAD_": "0",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
}
"""Environment under which glibc returns freed memory at once: by default, the peak of a small forward pass varies by
half."""


def in_fresh_process(module: str, job: Any, environment: dict[str, str] | None = None) -> Any:
    """Runs ``python -m module JOB`` and returns the JSON that it prints, or ``{"missing": why}`` if it fails."""
    command = [sys.executable, "-m", module, json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | (environment or {}))
    if done.returncode < 0:
        return {"missing": f"killed by signal {-done.returncode}, which is what happens where memory runs out"}
    if done.returncode != 0:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        return {"missing": f"does not run here: {last[:160]}"}
    return json.loads(done.stdout)


def peak_of(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """MiB that this process holds before a call, MiB that the call adds to them at its peak, and what it returns."""
    if sys.platform != "linux":
        raise SbmtError("Linux, to measure memory", sys.platform, "measure it there")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    before = _held("VmRSS")
    result = call()
    return before, _held("VmHWM") - before, result


def _held(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    [kibibytes] = (int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
    return 1024 * kibibytes / MEBIBYTE
