"""Manifests: the command, versions and machine that a number depends on."""

import os
import platform
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import sbmt


def manifest() -> dict[str, Any]:
    """What a number depends on besides its configuration: command, versions, hardware and date."""
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


def machine_manifest(device: torch.device | None = None) -> dict[str, Any]:
    """The manifest, plus the names of the processor and any GPU, such as "AMD EPYC (family 26, model 2; AVX512)".

    Names alone say little on virtual machines.
    """
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    found = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)", text, re.MULTILINE))
    which = "family {cpu family}, model {model}; ".format(**found) if len(found) == 3 else ""
    name = found.get("model name") or platform.processor() or "unknown"
    about = manifest() | {"processor": f"{name} ({which}{torch.backends.cpu.get_cpu_capability()})"}
    about["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "not set")
    if device is not None and device.type == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda or "unknown"}
    return about
