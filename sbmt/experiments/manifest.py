"""Manifests, which record the command, the versions and the machine that produced a result."""

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import sbmt


def manifest() -> dict[str, Any]:
    """Returns the command, date, software versions and hardware, on which a result may depend."""
    program = Path(sys.argv[0]).name
    return {
        "command": shlex.join(["sbmt" if program in ("sbmt", "__main__.py") else program, *sys.argv[1:]]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "sbmt": sbmt.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
    }
